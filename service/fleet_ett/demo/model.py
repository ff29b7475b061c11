"""A small click model in numpy: two embedding tables and an MLP, trained on clicks that have a pattern.

The data is a function of (seed, rank, step), so that a step that is trained again sees the same samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Parameters = dict[str, Floats]
    Batch = tuple[NDArray[np.int64], NDArray[np.int64], Floats]

USERS, ITEMS, WIDTH, HIDDEN = 300, 100, 16, 64
LEARNING_RATE = 0.5
SPARSE_RATE = 150.0  # of the tables: a row sees few of a batch's samples


def build(seed: int) -> Parameters:
    """The parameters at the beginning: the same on every rank."""
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float) -> Floats:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    return {
        "users": normal(USERS, WIDTH, scale=0.3),
        "items": normal(ITEMS, WIDTH, scale=0.3),
        "w1": normal(3 * WIDTH, HIDDEN, scale=0.15),
        "b1": np.zeros(HIDDEN, dtype=np.float32),
        "w2": normal(HIDDEN, 1, scale=0.15),
        "b2": np.zeros(1, dtype=np.float32),
    }


def clicks(seed: int, rank: int, step: int, samples: int) -> Batch:
    """One rank's samples of a step: users, items, and whether they clicked (0 or 1)."""
    truth = np.random.default_rng(seed + 1)
    taste, kind = truth.integers(0, 4, USERS), truth.integers(0, 4, ITEMS)
    random = np.random.default_rng((seed, rank, step))
    users, items = random.integers(0, USERS, samples), random.integers(0, ITEMS, samples)
    likely = np.where(taste[users] == kind[items], 0.9, 0.1)
    return users, items, (random.random(samples) < likely).astype(np.float32)[:, None]


def gradients(parameters: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """(mean loss, its gradient by every parameter) of a batch."""
    users, items, clicked = batch
    u, i = parameters["users"][users], parameters["items"][items]
    x = np.concatenate((u, i, u * i), axis=1)
    hidden = np.maximum(x @ parameters["w1"] + parameters["b1"], 0)
    score = hidden @ parameters["w2"] + parameters["b2"]
    chance = 1 / (1 + np.exp(-score))
    loss = -np.mean(clicked * np.log(chance + 1e-7) + (1 - clicked) * np.log(1 - chance + 1e-7))
    d_score = (chance - clicked) / len(clicked)
    d_hidden = (d_score @ parameters["w2"].T) * (hidden > 0)
    d_x = d_hidden @ parameters["w1"].T
    d_u, d_i, d_product = np.split(d_x, 3, axis=1)
    found = {
        "users": np.zeros_like(parameters["users"]),
        "items": np.zeros_like(parameters["items"]),
        "w1": x.T @ d_hidden,
        "b1": d_hidden.sum(axis=0),
        "w2": hidden.T @ d_score,
        "b2": d_score.sum(axis=0),
    }
    np.add.at(found["users"], users, d_u + d_product * i)
    np.add.at(found["items"], items, d_i + d_product * u)
    return float(loss), found


def update(parameters: Parameters, mean: Parameters) -> None:
    """One step of plain SGD."""
    for name, gradient in mean.items():
        parameters[name] -= (SPARSE_RATE if name in ("users", "items") else LEARNING_RATE) * gradient


def pack(values: Parameters, loss: float) -> Floats:
    """All arrays and the loss as one vector, for the ranks to average."""
    return np.concatenate(
        [*(values[name].ravel() for name in sorted(values)), np.array([loss], dtype=np.float32)]
    )


def unpack(vector: Floats, like: Parameters) -> tuple[Parameters, float]:
    """The arrays and the loss of a vector."""
    found: Parameters = {}
    offset = 0
    for name in sorted(like):
        size = like[name].size
        found[name] = vector[offset : offset + size].reshape(like[name].shape)
        offset += size
    return found, float(vector[offset])
