"""Cascades whose passes over M are known, by what makes each of interest."""

from __future__ import annotations

from tests.cascade.random_cascades import TILES, build

SOFTMAX = build(
    ["Q", "K[m]", "V[m]"],
    [
        "QK[m] = Q * K[m]",
        "GM = max_m(QK[m])",
        "SN[m] = exp(QK[m] - GM)",
        "SD = SN[m]",
        "A[m] = SN[m] / SD",
        "AV = A[m] * V[m]",
    ],
)
DEFERRED = build(
    ["Q", "K[m]", "V[m]"],
    [
        "QK[m] = Q * K[m]",
        "GM = max_m(QK[m])",
        "SN[m] = exp(QK[m] - GM)",
        "SD = SN[m]",
        "SNV = SN[m] * V[m]",
        "AV = SNV / SD",
    ],
)
LOCAL = build(  # maxima of tiles first, corrected once the largest is known
    ["Q", "K[m1,m0]", "V[m1,m0]"],
    [
        "QK[m1,m0] = Q * K[m1,m0]",
        "LM[m1] = max_m0(QK[m1,m0])",
        "GM = max_m1(LM[m1])",
        "SLN[m1,m0] = exp(QK[m1,m0] - LM[m1])",
        "SLD[m1] = SLN[m1,m0]",
        "C[m1] = exp(LM[m1] - GM)",
        "SD = SLD[m1] * C[m1]",
        "N[m1] = C[m1] / SD",
        "A[m1,m0] = SLN[m1,m0] * N[m1]",
        "AV = A[m1,m0] * V[m1,m0]",
    ],
    split=TILES,
)
FLASH = build(  # with the other ranks of attention too, and tiles that are views
    ["Q[e,p]", "K[e,m]", "V[f,m]"],
    [
        "BK[e,m1,m0] = K[e,m1*M0+m0]",
        "BV[f,m1,m0] = V[f,m1*M0+m0]",
        "BQK[m1,m0,p] = Q[e,p] * BK[e,m1,m0]",
        "LM[m1,p] = max_m0(BQK[m1,m0,p])",
        "RM[m1+1,p] = max(RM[m1,p], LM[m1,p])",
        "SLN[m1,m0,p] = exp(BQK[m1,m0,p] - RM[m1+1,p])",
        "SLD[m1,p] = SLN[m1,m0,p]",
        "SLNV[f,m1,p] = SLN[m1,m0,p] * BV[f,m1,m0]",
        "PRM[m1,p] = exp(RM[m1,p] - RM[m1+1,p])",
        "SPD[m1,p] = RD[m1,p] * PRM[m1,p]",
        "RD[m1+1,p] = SLD[m1,p] + SPD[m1,p]",
        "SPNV[f,m1,p] = RNV[f,m1,p] * PRM[m1,p]",
        "RNV[f,m1+1,p] = SLNV[f,m1,p] + SPNV[f,m1,p]",
        "AV[f,p] = RNV[f,M1,p] / RD[M1,p]",
    ],
    ["RM[0,p] = -inf", "RD[0,p] = 0", "RNV[f,0,p] = 0"],
    "m1",
    TILES,
)
RUNNING = ["R[m+1] = R[m] + A[m]"]
RUNNING_TILES = ["L[m1] = max_m0(A[m1,m0])", "R[m1+1] = max(R[m1], L[m1])"]

KNOWN = {
    "a map": (build(["A[m]", "B[m]"], ["Y[m] = A[m] * B[m]"]), 1),
    "a product times the sum of its factor": (build(["A[m]", "B[m]"], ["Y = A[m] * B[m]", "Z = Y * A[m]"]), 2),
    "the product of two sums": (build(["A[m]", "B[m]"], ["Y = A[m] * B[m]", "X = A[m]", "Z = Y * X"]), 1),
    "a running product of sums": (
        build(
            ["A[m]", "B[m]"],
            ["RY[m+1] = RY[m] + A[m] * B[m]", "RZ[m+1] = RZ[m] * RY[m+1] / RY[m] + RY[m+1] * A[m]", "Z = RZ[M]"],
            ["RY[0] = 1", "RZ[0] = 0"],
            "m",
        ),
        1,
    ),
    "softmax": (SOFTMAX, 3),
    "softmax that divides last": (DEFERRED, 2),
    "softmax from maxima of tiles": (LOCAL, 2),
    "softmax with a running maximum": (FLASH, 1),
    "no element at all": (build(["A[m]", "C"], ["Y = exp(C)"]), 0),
    "values of tiles alone": (build(["L[m1]", "C"], ["N[m1] = L[m1] * C", "S = max_m1(N[m1])"], split=TILES), 0),
    "a scalar for each element": (build(["A[m]"], ["S = max_m(A[m])", "Y[m] = S"]), 2),
    "a chain of three": (
        build(["A[m]"], ["S = A[m]", "T = S * A[m]", "U = exp(T)", "V = U * A[m]", "W[m] = V * A[m]"]),
        4,
    ),
    "a running sum": (build(["A[m]"], [*RUNNING, "Y[m] = A[m] * R[m+1]"], ["R[0] = 0"], "m"), 1),
    "the step before": (build(["A[m]"], [*RUNNING, "Y[m] = A[m] * R[m]"], ["R[0] = 0"], "m"), 1),
    "the step before, read first": (build(["A[m]"], ["Y[m] = A[m] * R[m]", *RUNNING], ["R[0] = 0"], "m"), 1),
    "the last step": (build(["A[m]"], [*RUNNING, "Y[m] = A[m] * R[M]"], ["R[0] = 0"], "m"), 2),
    "the last step alone": (build(["A[m]"], [*RUNNING, "Y = exp(R[M])"], ["R[0] = 0"], "m"), 1),
    "an iteration after a barrier": (
        build(["A[m]"], ["S = A[m]", "R[m+1] = R[m] + A[m] * S", "Y[m] = A[m] * R[M]"], ["R[0] = 0"], "m"),
        3,
    ),
    "the maximum of a tile": (
        build(["A[m1,m0]"], ["L[m1] = max_m0(A[m1,m0])", "Y[m1,m0] = A[m1,m0] - L[m1]"], split=TILES),
        1,
    ),
    "across tiles": (build(["A[m1,m0]"], ["T[m0] = sum_m1(A[m1,m0])", "Y[m1,m0] = A[m1,m0] * T[m0]"], split=TILES), 2),
    "the maximum of all tiles": (
        build(
            ["A[m1,m0]"],
            ["L[m1] = max_m0(A[m1,m0])", "S = max_m1(L[m1])", "Y[m1,m0] = A[m1,m0] - S"],
            split=TILES,
        ),
        2,
    ),
    "tiles corrected by a sum": (
        build(
            ["A[m1,m0]"],
            ["L[m1] = max_m0(A[m1,m0])", "S = max_m1(L[m1])", "N[m1] = L[m1] - S", "Y[m1,m0] = A[m1,m0] - N[m1]"],
            split=TILES,
        ),
        2,
    ),
    "corrections are no pass": (
        build(
            ["A[m1,m0]"],
            ["L[m1] = max_m0(A[m1,m0])", "S = max_m1(L[m1])", "N[m1] = exp(L[m1] - S)", "T = sum_m1(N[m1])"],
            split=TILES,
        ),
        1,
    ),
    "tiles that stream in the second pass": (
        build(
            ["A[m1,m0]"],
            [
                "S = sum_m1_m0(A[m1,m0])",
                "T[m1] = sum_m0(A[m1,m0] * S)",
                "N[m1] = T[m1] * S",
                "Y[m1,m0] = A[m1,m0] * N[m1]",
            ],
            split=TILES,
        ),
        2,
    ),
    "a running maximum of tiles": (
        build(["A[m1,m0]"], [*RUNNING_TILES, "Y[m1,m0] = A[m1,m0] - R[m1+1]"], ["R[0] = 0"], "m1", TILES),
        1,
    ),
    "the last maximum of tiles": (
        build(["A[m1,m0]"], [*RUNNING_TILES, "Y[m1,m0] = A[m1,m0] - R[M1]"], ["R[0] = 0"], "m1", TILES),
        2,
    ),
    "an iteration without a pass": (
        build(
            ["A[m1,m0]", "D[m1]"], ["R[m1+1] = R[m1] + D[m1]", "Y[m1,m0] = A[m1,m0] * R[M1]"], ["R[0] = 0"], "m1", TILES
        ),
        1,
    ),
}
