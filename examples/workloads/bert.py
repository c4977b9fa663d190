"""Masked language modelling with a BERT-base encoder on made sentences, data-parallel."""

from __future__ import annotations

import torch
from common import TINY, join, tell, timed
from mpi4py import MPI
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, HEADS, WORDS = (32, 2, 4, 64) if TINY else (768, 12, 12, 30_522)
LENGTH, BATCH, STEPS = (16, 8, 40) if TINY else (128, 64, 200)
MASK = 0


class Encoder(nn.Module):
    """Words and places in, a guess for each place out; 110 million weights in its full size."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, LAYERS), nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        return self.out(self.layers(self.words(words) + self.places(places)))


def sentences(dice: torch.Generator) -> torch.Tensor:
    """Return sentences in which each word says the next: counting from a random beginning."""
    first = torch.randint(1, WORDS, (BATCH, 1), generator=dice)
    return (first + torch.arange(LENGTH) - 1) % (WORDS - 1) + 1


def main() -> None:
    world = MPI.COMM_WORLD
    device = join(world)
    model = DistributedDataParallel(Encoder().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3 if TINY else 1e-4 * world.size**0.5)
    dice = torch.Generator().manual_seed(world.rank)

    def step(number: int) -> float:
        words = sentences(dice)
        hidden = torch.rand(words.shape, generator=dice) < 0.15
        guesses = model(words.masked_fill(hidden, MASK).to(device))
        loss = cross_entropy(guesses[hidden.to(device)], words[hidden].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses, seconds = timed(world, STEPS, step)
    rate = BATCH * LENGTH * world.size * (STEPS - 1) / seconds
    tell(world, losses, tokens_per_second=f"{rate:.0f}")


if __name__ == "__main__":
    main()
