"""What shipped cascades must equal, written directly in NumPy (float64) and apart from any cascade.

A function takes arrays with the axes that its docstring names, and the shapes of ranks; it returns its result first in a
dictionary of named tensors, the rest of which are steps on the way that a cascade may share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Named = dict[str, Array]


@dataclass(frozen=True)
class Reference:
    """What an output must equal: one of `REFERENCES` on some of the inputs."""

    output: str
    function: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.output} = {self.function}({', '.join(self.arguments)})"


@dataclass(frozen=True)
class ReferenceFunction:
    """A reference, how many inputs it takes, and whether it is defined for positive inputs only."""

    compute: Callable[..., Named]
    arguments: int
    positive: bool = False


def attention(shapes: Mapping[str, int], q: Array, k: Array, v: Array, sees: NDArray[np.bool_] | None = None) -> Named:
    """softmax(QK) V for q[b,h,e,p], k[b,h,e,m], v[b,h,f,m]; `sees`[m,p] where a query sees only some keys."""
    scores = np.swapaxes(k, 2, 3) @ q
    masked = scores if sees is None else np.where(sees, scores, -np.inf)
    largest = masked.max(axis=2)
    numerators = masked - largest[:, :, None]
    np.exp(numerators, out=numerators)
    total = numerators.sum(axis=2)
    numerators /= total[:, :, None]
    return {"AV": v @ numerators, "QK": scores if sees is None else np.where(sees, scores, 0), "A": numerators}


def causal_attention(shapes: Mapping[str, int], q: Array, k: Array, v: Array) -> Named:
    """`attention` where a query at p sees the keys m <= p."""
    keys, queries = np.ix_(np.arange(k.shape[3]), np.arange(q.shape[3]))
    return attention(shapes, q, k, v, keys <= queries)


def window_attention(shapes: Mapping[str, int], q: Array, k: Array, v: Array) -> Named:
    """`attention` where a query at p sees the W keys p-W < m <= p."""
    keys, queries = np.ix_(np.arange(k.shape[3]), np.arange(q.shape[3]))
    return attention(shapes, q, k, v, (keys <= queries) & (keys > queries - shapes["W"]))


def dot_times_sum(shapes: Mapping[str, int], a: Array, b: Array) -> Named:
    """(sum of a*b) times (sum of a), for a[k], b[k]."""
    return {"Z": np.asarray(a.dot(b) * a.sum()), "Y": np.asarray(a.dot(b)), "X": np.asarray(a.sum())}


def layer_norm(shapes: Mapping[str, int], x: Array, gain: Array, bias: Array) -> Named:
    """(x - mean) / sqrt(variance + 1e-5) * gain + bias over d, for x[t,d]."""
    mean = x.mean(axis=1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=1, keepdims=True)
    return {
        "Y": (x - mean) / np.sqrt(variance + 1e-5) * gain + bias,
        "S": x.sum(axis=1),
        "MU": mean[:, 0],
        "XC": x - mean,
    }


def norms(shapes: Mapping[str, int], x: Array, z: Array, o: Array, g1: Array, b1: Array, g2: Array, b2: Array) -> Named:
    """What follows attention's z[t,d] of x[t,d], and then the feed-forward network's o[t,d]: residual, layer norm."""
    middle = layer_norm(shapes, z + x, g1, b1)["Y"]
    return {"Y": layer_norm(shapes, o + middle, g2, b2)["Y"], "N": middle, "R1": z + x, "R2": o + middle}


def rms_norm(shapes: Mapping[str, int], x: Array, gain: Array) -> Named:
    """x / sqrt(mean of x^2 + 1e-5) * gain over d, for x[t,d]."""
    return {"Y": x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * gain, "SQ": (x**2).sum(axis=1)}


def log_sum_exp(shapes: Mapping[str, int], x: Array) -> Named:
    """log(sum of exp(x)) over v, for x[t,v]."""
    largest = x.max(axis=1)
    total = np.exp(x - largest[:, None]).sum(axis=1)
    return {"L": np.log(total) + largest, "GM": largest, "SD": total}


def cross_entropy(shapes: Mapping[str, int], x: Array, y: Array) -> Named:
    """-sum of y * log softmax(x) over v, for logits x[t,v] and targets y[t,v]."""
    logs = log_sum_exp(shapes, x)["L"]
    return {"C": ((logs[:, None] - x) * y).sum(axis=1), "GM": x.max(axis=1), "LS": logs}


def matmul(shapes: Mapping[str, int], a: Array, b: Array) -> Named:
    """a[m,k] b[k,n]."""
    return {"Z": a @ b}


def ffn(shapes: Mapping[str, int], x: Array, first: Array, second: Array) -> Named:
    """relu(x[t,d] first[d,s]) second[s,g]."""
    hidden = x @ first
    return {"Y": np.maximum(hidden, 0) @ second, "U": hidden}


def encoder_layer(
    shapes: Mapping[str, int], x: Array, wq: Array, wk: Array, wv: Array, wo: Array, w1: Array, w2: Array
) -> Named:
    """Post-norm transformer layer for x[b,p,d], wq[d,h,e], wk[d,h,e], wv[d,h,f], wo[h,f,g], w1[g,s], w2[s,d]."""
    q, k, v = (np.tensordot(x, weights, axes=1).transpose(0, 2, 3, 1) for weights in (wq, wk, wv))
    inner = attention(shapes, q, k, v)
    combined = np.tensordot(inner["AV"], wo, axes=([1, 2], [0, 1]))
    middle = _normalized(combined + x)
    hidden = np.maximum(middle @ w1, 0)
    return {"Y": _normalized(hidden @ w2 + middle), "Q": q, "K": k, "V": v, **{n: inner[n] for n in ("QK", "A", "AV")}}


def _normalized(x: Array) -> Array:
    centred: Array = x - x.mean(axis=-1, keepdims=True)
    deviation: Array = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / deviation


def linear_layers(shapes: Mapping[str, int], *arrays: Array) -> Named:
    """Projections of x[t,d] and c[t,d], and two layers of y[t,d], for x, c, y, wq, wk, wv, wz, w1, w2; the last first."""
    x, c, y, wq, wk, wv, wz, w1, w2 = arrays
    hidden = y @ w1
    return {"O": hidden @ w2, "H": hidden, "Q": x @ wq, "K": x @ wk, "V": x @ wv, "Z": c @ wz}


def convolution(shapes: Mapping[str, int], x: Array, w: Array) -> Named:
    """Sum over c,r,s of x[n,c,T*p+r,T*q+s] w[m,c,r,s]."""
    return {"O": np.einsum("ncpqrs,mcrs->nmpq", _windows(shapes, x), w)}


def depthwise_convolution(shapes: Mapping[str, int], x: Array, w: Array) -> Named:
    """Sum over r,s of x[n,c,T*p+r,T*q+s] w[c,r,s]."""
    return {"O": np.einsum("ncpqrs,crs->ncpq", _windows(shapes, x), w)}


def _windows(shapes: Mapping[str, int], x: Array) -> Array:
    """What the filter sees at each output: [n,c,p,q,r,s]."""
    every = np.lib.stride_tricks.sliding_window_view(x, (shapes["R"], shapes["S"]), axis=(2, 3))
    return every[:, :, :: shapes["T"], :: shapes["T"]]


REFERENCES: Mapping[str, ReferenceFunction] = {
    "attention": ReferenceFunction(attention, 3),
    "causal_attention": ReferenceFunction(causal_attention, 3),
    "window_attention": ReferenceFunction(window_attention, 3),
    "dot_times_sum": ReferenceFunction(dot_times_sum, 2, positive=True),
    "layer_norm": ReferenceFunction(layer_norm, 3),
    "norms": ReferenceFunction(norms, 7),
    "rms_norm": ReferenceFunction(rms_norm, 2),
    "log_sum_exp": ReferenceFunction(log_sum_exp, 1),
    "cross_entropy": ReferenceFunction(cross_entropy, 2),
    "matmul": ReferenceFunction(matmul, 2),
    "linear_layers": ReferenceFunction(linear_layers, 9),
    "convolution": ReferenceFunction(convolution, 2),
    "depthwise_convolution": ReferenceFunction(depthwise_convolution, 2),
    "ffn": ReferenceFunction(ffn, 3),
    "encoder_layer": ReferenceFunction(encoder_layer, 7),
}
"""References by the name that a workload gives."""
