"""Collectives of torch.distributed on Gloo, timed and checked as `shardbench collectives` does.

python bench/peers/collectives.py WORK.json

Prints `title TEXT` and, for every row of WORK.json, `row JSON` with time_us (slowest rank's mean over
the iterations) and nwrong. Payloads are fp32; the parts of all_gather and reduce_scatter are of
ceil(count / n) elements, so sizes that do not divide are padded here and only the payload counts.
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


def pattern(count, rank):
    """Whole numbers, so that sums are exact."""
    return (torch.arange(count) % 13 + rank).float()


def pattern_sum(count, world):
    return ((torch.arange(count) % 13) * world + world * (world - 1) // 2).float()


class Row:
    """One collective on one size: `call` issues it, `wrong` counts wrong elements of this rank."""

    def __init__(self, op, count, rank, world):
        self.op, self.count, self.rank, self.world = op, count, rank, world
        self.part = -(-count // world)
        self.full = torch.zeros(self.part * world)
        self.shard = torch.zeros(self.part)

    def fill(self):
        mine = pattern(self.part * self.world, self.rank)
        if self.op == "all_gather":
            self.shard.copy_(pattern(self.part, self.rank))
        else:
            self.full.copy_(mine)

    def zero(self):
        self.full.zero_()
        self.shard.zero_()

    def call(self):
        payload = self.full[: self.count]
        if self.op == "all_reduce":
            dist.all_reduce(payload)
        elif self.op == "all_gather":
            dist.all_gather_into_tensor(self.full, self.shard)
        elif self.op == "reduce_scatter":
            dist.reduce_scatter_tensor(self.shard, self.full)
        elif self.op == "broadcast":
            dist.broadcast(payload, src=0)
        elif self.op == "reduce":
            dist.reduce(payload, dst=0)
        else:
            raise ValueError(f"unknown collective {self.op}")

    def wrong(self):
        count = self.count
        if self.op == "all_gather":
            expected = torch.cat([pattern(self.part, r) for r in range(self.world)])
            return int((self.full != expected).sum())
        if self.op == "reduce_scatter":
            begin = self.rank * self.part
            expected = pattern_sum(self.part * self.world, self.world)
            return int((self.shard != expected[begin : begin + self.part]).sum())
        if self.op == "broadcast":
            return int((self.full[:count] != pattern(count, 0)).sum())
        if self.op == "reduce" and self.rank != 0:
            return 0
        return int((self.full[:count] != pattern_sum(count, self.world)).sum())


def measure(row, work):
    row.fill()
    dist.barrier()
    row.call()
    wrong = torch.tensor([row.wrong()])
    dist.all_reduce(wrong)
    row.zero()  # zeros stay zeros, however often they are added up
    for _ in range(work["warmup"]):
        row.call()
    dist.barrier()
    start = time.perf_counter_ns()
    for _ in range(work["iterations"]):
        row.call()
    mine = (time.perf_counter_ns() - start) / 1e3 / work["iterations"]
    slowest = torch.tensor([mine], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item(), int(wrong.item())


def run_rank(rank, work):
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    torch.set_num_threads(1)
    world = work["world_size"]
    dist.init_process_group(
        "gloo",
        store=dist.TCPStore("127.0.0.1", work["port"], is_master=False),
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=work["timeout_s"]),
    )
    for entry in work["rows"]:
        time_us, wrong = measure(Row(entry["op"], entry["count"], rank, world), work)
        if rank == 0:
            print("row " + json.dumps({"time_us": time_us, "nwrong": wrong}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    with open(sys.argv[1]) as file:
        work = json.load(file)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    print(f"title Gloo (torch {torch.__version__})", flush=True)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    work["port"] = store.port
    mp.start_processes(run_rank, (work,), nprocs=work["world_size"], start_method="fork")


if __name__ == "__main__":
    main()
