"""Results of the lab as files of results/: what belongs to one machine's folders is left out."""

import json
import pathlib
import subprocess

LEFT_OUT = ("env", "executable", "world_size")


def mpi_version():
    command = ["mpirun.openmpi", "--version"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "Open MPI " + text.split("\n", 1)[0].split()[-1]


def context_of(document, command, **more):
    """The program's own context with the lab's command in place of the program's."""
    program = document["context"]["executable"]
    context = {k: v for k, v in document["context"].items() if k not in LEFT_OUT}
    args = ["build/bin/shardbench" if word == program else word for word in command]
    return context | {"mpi_version": mpi_version(), "args": args} | more


def config_of(document):
    return {k: v for k, v in document["config"].items() if k not in ("tuning", "data")}


def write(prefix, record, texts):
    """PREFIX.json, and PREFIX.SUFFIX of each text."""
    pathlib.Path(prefix + ".json").write_text(json.dumps(record, indent=1) + "\n")
    for suffix, text in texts.items():
        pathlib.Path(f"{prefix}.{suffix}").write_text(text.rstrip("\n") + "\n")
