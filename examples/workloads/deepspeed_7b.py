"""A decoder of 7 billion weights with DeepSpeed ZeRO 3, which writes a checkpoint to a claim and goes on from it."""

from __future__ import annotations

import os

import deepspeed
import torch
from common import TINY, join, tell, timed
from mpi4py import MPI
from torch import nn
from torch.nn.functional import cross_entropy

WIDTH, LAYERS, HEADS, WORDS = (32, 2, 4, 64) if TINY else (4096, 34, 32, 32_000)
LENGTH, BATCH, STEPS = (16, 4, 24) if TINY else (2048, 1, 100)
CHECKPOINTS = os.environ.get("CHECKPOINTS", "/checkpoints")
CONFIG = {
    "train_micro_batch_size_per_gpu": BATCH,
    "zero_optimization": {"stage": 1 if TINY else 3},
    "bf16": {"enabled": not TINY},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-2 if TINY else 1e-4, "torch_adam": True}},
    "steps_per_print": 1_000_000,
}


class Decoder(nn.Module):
    """Each place sees those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, LAYERS), nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        later = torch.triu(
            torch.ones(words.shape[1], words.shape[1], dtype=torch.bool, device=words.device), 1
        )
        return self.out(self.layers(self.words(words), mask=later))


def main() -> None:
    world = MPI.COMM_WORLD
    device = join(world)
    if TINY:  # gloo is enough here; what DeepSpeed adds for CPUs it would compile at every first start
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        dist_backend="nccl" if device.type == "cuda" else "gloo", auto_mpi_discovery=False
    )
    with deepspeed.zero.Init(enabled=not TINY):
        model = Decoder()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    found, _ = engine.load_checkpoint(CHECKPOINTS) if os.path.exists(f"{CHECKPOINTS}/latest") else (None, {})
    dice = torch.Generator().manual_seed(world.rank)

    def step(number: int) -> float:
        first = torch.randint(WORDS, (BATCH, 1), generator=dice)
        words = ((first + torch.arange(LENGTH + 1)) % WORDS).to(engine.device)
        loss = cross_entropy(engine(words[:, :-1]).flatten(0, 1).float(), words[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        return loss.item()

    losses, seconds = timed(world, STEPS, step)
    engine.save_checkpoint(CHECKPOINTS)
    rate = BATCH * LENGTH * world.size * (STEPS - 1) / seconds
    resumed = "yes" if found else "no"
    tell(world, losses, tokens_per_second=f"{rate:.0f}", checkpoint=CHECKPOINTS, resumed=resumed)


if __name__ == "__main__":
    main()
