#!/usr/bin/env python3
"""Writes tests/golden/measure/*.json: distances between sets of features, a resize and quantiles, by what others publish.

    make_measure_goldens.py        needs numpy, scipy 1.15.3 (whose sqrtm clean-fid can call), clean-fid 0.1.35, Pillow 13.0.0, mpmath

features.json     {"made_by", "cases": [{"name", "width", "a", "b", "frechet", "exact", "kernel"}]}: rows of features, flat; `frechet` by
                  clean-fid, absent where scipy's sqrtm of the singular product strays from `exact`; `exact` with the root's trace in 40
                  digits; `kernel` by clean-fid where both sets have as many rows, so that no draw changes it
resize.json       {"made_by", "cases": [{"name", "width", "height", "pixels", "side", "resized"}]}: clean-fid's resize of a picture's bytes
statistics.json   {"made_by", "student_t": [[share, degrees, quantile]], "normal": [[share, quantile]],
                  "binomial": [[successes, trials, error rate, low, high]], "sign": [[successes, trials, p]], "holm": [[p...], [adjusted...]]}
"""

import json
import pathlib

import mpmath
import numpy as np
import PIL
import scipy
from cleanfid import fid
from cleanfid.resize import make_resizer
from scipy import stats

OUT = pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "golden" / "measure"
DIGITS = 40
AGREED = 1e-7  # Relative; where clean-fid is further from the exact value, only that is kept.


def exact_frechet(a, b):
    """With the eigenvalues of the product of both covariances in many digits; those of a product of two such matrices are at least 0."""
    mpmath.mp.dps = DIGITS
    means, covariances = [], []
    for rows in (a, b):
        matrix = mpmath.matrix(rows.tolist())
        mean = [mpmath.fsum(matrix[i, j] for i in range(matrix.rows)) / matrix.rows for j in range(matrix.cols)]
        centred = mpmath.matrix(matrix.rows, matrix.cols)
        for i in range(matrix.rows):
            for j in range(matrix.cols):
                centred[i, j] = matrix[i, j] - mean[j]
        means.append(mean)
        covariances.append((centred.T * centred) / (matrix.rows - 1))
    values, vectors = mpmath.eigsy(covariances[0])
    root = vectors * mpmath.diag([mpmath.sqrt(max(value, 0)) for value in values]) * vectors.T
    inner = mpmath.eigsy(root * covariances[1] * root, eigvals_only=True)
    trace = sum(covariances[0][i, i] + covariances[1][i, i] for i in range(a.shape[1]))
    return float(sum((x - y) ** 2 for x, y in zip(*means)) + trace - 2 * sum(mpmath.sqrt(max(value, 0)) for value in inner))


def feature_cases():
    random = np.random.default_rng(7)
    scales = np.logspace(-3, 2, 10)
    mixing = random.normal(size=(6, 6))
    low_rank = random.normal(size=(3, 12))
    yield "more rows than features", random.normal(size=(40, 6)) @ mixing, random.normal(size=(25, 6)) + 0.5
    yield "as many rows", random.gamma(2.0, size=(16, 5)), random.gamma(2.5, size=(16, 5))
    yield "fewer rows than features", random.normal(size=(7, 12)), random.normal(size=(9, 12)) * 1.3
    yield "scales of five powers of ten", random.normal(size=(30, 10)) * scales, random.normal(size=(30, 10)) * scales[::-1]
    yield "nearly singular", random.normal(size=(20, 3)) @ low_rank + 1e-7 * random.normal(size=(20, 12)), random.normal(size=(20, 3)) @ low_rank
    yield "one feature", random.normal(size=(9, 1)), random.normal(size=(4, 1))
    same = random.normal(size=(12, 8))
    yield "the same", same, same.copy()


def write_features():
    np.random.seed(0)  # clean-fid draws its subsets, here of everything, from this generator.
    cases = []
    for name, a, b in feature_cases():
        a, b = (np.array([float(f"{value:.6g}") for value in rows.ravel()]).reshape(rows.shape) for rows in (a, b))
        case = {"name": name, "width": a.shape[1], "a": a.ravel().tolist(), "b": b.ravel().tolist(), "exact": exact_frechet(a, b)}
        published = fid.frechet_distance(a.mean(0), np.cov(a, rowvar=False), b.mean(0), np.cov(b, rowvar=False))
        print(f"{name}: exact {case['exact']!r}, clean-fid {published!r}")
        if abs(published - case["exact"]) <= AGREED * abs(case["exact"]):
            case["frechet"] = float(published)
        if len(a) == len(b):
            case["kernel"] = fid.kernel_distance(a, b, num_subsets=3)
        cases.append(case)
    made_by = f"make_measure_goldens.py, clean-fid 0.1.35, numpy {np.__version__}, scipy {scipy.__version__}, mpmath {mpmath.__version__}"
    (OUT / "features.json").write_text(json.dumps({"made_by": made_by, "cases": cases}, separators=(",", ":")) + "\n", encoding="utf-8")


def write_resizes():
    random = np.random.default_rng(3)
    cases = []
    for name, width, height, side in (("larger", 7, 5, 13), ("smaller", 40, 31, 9), ("one pixel", 1, 1, 4), ("black and white", 6, 6, 11)):
        levels = np.array([0, 255]) if name == "black and white" else np.arange(256)
        pixels = random.choice(levels, size=(height, width, 3)).astype(np.uint8)
        resized = make_resizer("PIL", False, "bicubic", (side, side))(pixels)
        cases.append({"name": name, "width": width, "height": height, "pixels": pixels.ravel().tolist(), "side": side,
                      "resized": [float(f"{value:.9g}") for value in resized.ravel()]})
    made_by = f"make_measure_goldens.py, clean-fid 0.1.35, Pillow {PIL.__version__}"
    (OUT / "resize.json").write_text(json.dumps({"made_by": made_by, "cases": cases}, separators=(",", ":")) + "\n", encoding="utf-8")


def holm(p_values):
    """The definition, one by one."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    for rank, i in enumerate(order):
        adjusted[i] = min(1.0, max((len(order) - k) * p_values[order[k]] for k in range(rank + 1)))
    return adjusted


def write_statistics():
    student = [[share, degrees, float(stats.t.ppf(share, degrees))] for share in (0.005, 0.025, 0.5, 0.9, 0.999) for degrees in (1, 2, 7, 39, 1000)]
    normal = [[share, float(stats.norm.ppf(share))] for share in (1e-12, 0.001, 0.025, 0.5, 0.84, 0.975)]
    binomial, sign = [], []
    for successes, trials in ((0, 10), (10, 10), (7, 10), (1, 3), (50, 100), (499, 1000)):
        for error_rate in (0.05, 0.01):
            interval = stats.binomtest(successes, trials).proportion_ci(confidence_level=1 - error_rate, method="exact")
            binomial.append([successes, trials, error_rate, float(interval.low), float(interval.high)])
        sign.append([successes, trials, float(stats.binomtest(successes, trials).pvalue)])
    p_values = [[0.01, 0.04, 0.03, 0.005], [0.5], [0.2, 0.2, 0.9], [0.001, 0.001, 0.02]]
    table = {"made_by": f"make_measure_goldens.py, scipy {scipy.__version__}", "student_t": student, "normal": normal, "binomial": binomial, "sign": sign,
             "holm": [[case, holm(case)] for case in p_values]}
    (OUT / "statistics.json").write_text(json.dumps(table, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write_features()
    write_resizes()
    write_statistics()


if __name__ == "__main__":
    main()
