"""One function per peer: takes the whole model with its weights, returns a Training.

Weight decay goes to matrices and embeddings only; AdamW is the fused one everywhere.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


class Training:
    """A wrapped model with its optimizer: what a step is made of."""

    def __init__(self, model, optimizer, work):
        self.model = model
        self.optimizer = optimizer
        self.max_norm = work["max_norm"]
        self.accumulation = work["accumulation"]

    def micro_batch(self, tokens, targets, last):
        """Forward and backward of one micro-batch; returns its loss."""
        with contextlib.nullcontext() if last else self.without_reduction():
            loss = self.forward(tokens, targets)
            value = loss.item()
            (loss / self.accumulation).backward()
        return value

    def forward(self, tokens, targets):
        return self.model(tokens, targets)

    def without_reduction(self):
        """Around micro-batches whose gradients need not be reduced yet."""
        return contextlib.nullcontext()

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)

    def update(self, lr):
        if self.max_norm > 0:
            self.clip()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=True)


def groups_of(named, decays, work):
    """Parameter groups with and without weight decay; `decays` are the names that have it."""
    decay, rest = [], []
    for name, parameter in named:
        (decay if name in decays else rest).append(parameter)
    return [
        {"params": decay, "weight_decay": work["optimizer"]["weight_decay"]},
        {"params": rest, "weight_decay": 0.0},
    ]


def decaying(model):
    return {name for name, parameter in model.named_parameters() if parameter.dim() >= 2}


def adamw_options(work):
    optimizer = work["optimizer"]
    return {
        "lr": work["lr"][0],
        "betas": (optimizer["beta1"], optimizer["beta2"]),
        "eps": optimizer["eps"],
        "fused": True,
    }


def adamw(named, decays, work):
    return torch.optim.AdamW(groups_of(named, decays, work), **adamw_options(work))


def is_bf16(work):
    return work["dtype"] == "bf16"


# --- DistributedDataParallel ---------------------------------------------------------------------


class DdpTraining(Training):
    def __init__(self, model, optimizer, work):
        super().__init__(data_parallel(model, work), optimizer, work)
        self.bf16 = is_bf16(work)

    def without_reduction(self):
        return self.model.no_sync()

    def forward(self, tokens, targets):
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self.bf16):
            return self.model(tokens, targets)


def data_parallel(model, work):
    return DistributedDataParallel(
        model, bucket_cap_mb=work["bucket_cap_mib"], gradient_as_bucket_view=True
    )


def ddp(model, work):
    optimizer = adamw(list(model.named_parameters()), decaying(model), work)
    return DdpTraining(model, optimizer, work)


def zero_optimizer(model, work):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    groups = groups_of(list(model.named_parameters()), decaying(model), work)
    optimizer = ZeroRedundancyOptimizer(
        groups, optimizer_class=torch.optim.AdamW, **adamw_options(work)
    )
    return DdpTraining(model, optimizer, work)


# --- FSDP ----------------------------------------------------------------------------------------


def unit_modules(model, work):
    """The modules to wrap, those around others first; the model itself is the last unit."""
    return [model.get_submodule(path) for path in work["units"]]


class Fsdp1Training(Training):
    def clip(self):
        self.model.clip_grad_norm_(self.max_norm)


def fsdp1(model, work):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import CustomPolicy

    decays = decaying(model)
    kept = work["reshard_after_forward"] == "false"
    mixed = None
    if is_bf16(work):
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    units = set(unit_modules(model, work))
    wrapped = FullyShardedDataParallel(
        model,
        auto_wrap_policy=CustomPolicy(lambda module: module in units),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if kept else ShardingStrategy.FULL_SHARD,
        mixed_precision=mixed,
        device_id=torch.device(work["device"], torch.accelerator.current_device_index())
        if work["device"] == "cuda"
        else torch.device("cpu"),
        use_orig_params=True,
    )
    named = [
        (name.replace("_fsdp_wrapped_module.", ""), parameter)
        for name, parameter in wrapped.named_parameters()
    ]
    return Fsdp1Training(wrapped, adamw(named, decays, work), work)


RESHARD = {"true": True, "false": False, "auto": None}


def fsdp2(model, work, reshard=None):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    decays = decaying(model)
    mesh = init_device_mesh(work["device"], (dist.get_world_size(),))
    options = {"mesh": mesh, "reshard_after_forward": RESHARD[work["reshard_after_forward"]]}
    if reshard is not None:
        options["reshard_after_forward"] = reshard
    if is_bf16(work):
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for unit in reversed(unit_modules(model, work)):
        fully_shard(unit, **options)
    fully_shard(model, **options)
    return Training(model, adamw(list(model.named_parameters()), decays, work), work)


def fsdp2_kept(model, work):
    return fsdp2(model, work, reshard=False)


# --- DeepSpeed -----------------------------------------------------------------------------------


class DeepSpeedTraining(Training):
    """The engine divides the loss by the micro-batches and clips by itself."""

    def micro_batch(self, tokens, targets, last):
        loss = self.model(tokens, targets)
        value = loss.item()
        self.model.backward(loss)
        if not last:
            self.model.step()  # only counts
        return value

    def update(self, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.model.step()

    def zero_grad(self):
        pass  # the engine's step has done it


def deepspeed(model, work, stage):
    import deepspeed as ds

    groups = groups_of(list(model.named_parameters()), decaying(model), work)
    optimizer = torch.optim.AdamW(groups, **adamw_options(work))
    config = {
        "train_micro_batch_size_per_gpu": work["micro_batch"],
        "gradient_accumulation_steps": work["accumulation"],
        "gradient_clipping": work["max_norm"],
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": stage},
    }
    if is_bf16(work):
        config["bf16"] = {"enabled": True}
    engine, optimizer, _, _ = ds.initialize(model=model, optimizer=optimizer, config=config)
    return DeepSpeedTraining(engine, optimizer, work)


WRAPS = {
    "ddp": ddp,
    "zero-optimizer": zero_optimizer,
    "fsdp1": fsdp1,
    "fsdp2": fsdp2,
    "fsdp2-kept": fsdp2_kept,
    "fsdp2-blocks": fsdp2,
    "ds-zero1": lambda model, work: deepspeed(model, work, 1),
    "ds-zero2": lambda model, work: deepspeed(model, work, 2),
    "ds-zero3": lambda model, work: deepspeed(model, work, 3),
}
