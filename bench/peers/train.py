"""One run of one peer: the training of `shardbench compare`, done by another framework.

python bench/peers/train.py WORK.json

WORK.json says it all: peer, model, sizes, optimizer, and the files of initial weights and tokens.
Every rank is a process of its own. Standard output gets `step N` after each step of rank 0 and
at the end `result JSON`; why a run failed is the last line of standard error.

On CPUs ranks talk over Gloo. "device": "cuda" (NCCL, a GPU per rank) is written but untested.
"""

import ctypes
import datetime
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import gpt2
import llama
import mlp
from tensors import TensorFile, load_weights
from wraps import WRAPS

FAMILIES = {"gpt2": gpt2.GPT2, "llama": llama.Llama, "mlp": mlp.MLP}


def memory_field(path, field):
    """Bytes of one kB line of a /proc file."""
    with open(path) as lines:
        for line in lines:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(f"{path} has no line {field}")


def reset_peak_resident():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def join(rank, work):
    torch.set_num_threads(work["threads"])
    if work["device"] == "cuda":
        torch.cuda.set_device(rank)
    # What DeepSpeed reads in place of arguments.
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(work["world_size"]))
    dist.init_process_group(
        "nccl" if work["device"] == "cuda" else "gloo",
        store=dist.TCPStore("127.0.0.1", work["port"], is_master=False),
        rank=rank,
        world_size=work["world_size"],
        timeout=datetime.timedelta(seconds=work["timeout_s"]),
    )


def finish_device(work):
    if work["device"] == "cuda":
        torch.cuda.synchronize()


def train_step(training, batches, lr, work):
    """Returns (ns, mean loss of this rank's micro-batches)."""
    training.zero_grad()
    finish_device(work)
    dist.barrier()
    start = time.perf_counter_ns()
    loss = 0.0
    for index, (tokens, targets) in enumerate(batches):
        loss += training.micro_batch(tokens, targets, index + 1 == len(batches)) / len(batches)
    training.update(lr)
    finish_device(work)
    return time.perf_counter_ns() - start, loss


def micro_batches(tokens, step, rank, work):
    """Pairs of tokens and targets [batch, seq] of one rank and step."""
    batches = []
    for micro in range(work["accumulation"]):
        index = (step * work["accumulation"] + micro) * work["world_size"] + rank
        pair = tokens.read_slice("tokens", index).long().to(work["device"])
        batches.append((pair[0], pair[1]))
    return batches


def run_rank(rank, work):
    die_with_parent()
    join(rank, work)
    start = memory_field("/proc/self/status", "VmRSS")
    model = FAMILIES[work["model"]["family"]](work["model"])
    load_weights(model, work["weights"])
    training = WRAPS[work["peer"]](model.to(work["device"]), work)
    del model
    # In the peers' favour: the whole model, which each rank makes first, does not count.
    reset_peak_resident()

    tokens = TensorFile(work["tokens"])
    times, losses = [], []
    for step, lr in enumerate(work["lr"]):
        ns, loss = train_step(training, micro_batches(tokens, step, rank, work), lr, work)
        times.append(ns)
        losses.append(loss)
        if rank == 0:
            print(f"step {step + 1}", flush=True)

    dist.barrier()
    report = {
        "rank": rank,
        "pid": os.getpid(),
        "step_ns": times,
        "losses": losses,
        "rss_start_bytes": start,
        "rss_peak_bytes": memory_field("/proc/self/status", "VmHWM"),
        "pss_bytes": memory_field("/proc/self/smaps_rollup", "Pss"),
    }
    reports = [None] * work["world_size"]
    dist.all_gather_object(reports, report)
    if rank == 0:
        print("result " + json.dumps({"versions": versions(work), "per_rank": reports}), flush=True)
    dist.barrier()  # pages shared with a rank that has left would count wholly
    dist.destroy_process_group()


def versions(work):
    found = {"python": sys.version.split()[0], "torch": torch.__version__}
    if work["framework"] == "deepspeed":
        import deepspeed

        found["deepspeed"] = deepspeed.__version__
    return found


def main():
    with open(sys.argv[1]) as file:
        work = json.load(file)
    if work["device"] == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["DS_ACCELERATOR"] = "cpu"
    # Where setup.sh has built DeepSpeed's operator, and the ninja that it is looked up with.
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(sys.prefix, "torch_extensions")
    os.environ["PATH"] = os.path.join(sys.prefix, "bin") + os.pathsep + os.environ.get("PATH", "")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    work["port"] = store.port
    # Forked, as our ranks are: they share what importing PyTorch takes. CUDA cannot be forked.
    mp.start_processes(
        run_rank,
        (work,),
        nprocs=work["world_size"],
        start_method="spawn" if work["device"] == "cuda" else "fork",
    )


if __name__ == "__main__":
    main()
