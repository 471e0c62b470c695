"""One run of the mapper, from the innermost level to the outermost: what is built, what is dropped, what is left.

Of two partial nests that cover the same extents, the one that costs no more in every way that loops further out can
still matter to is as good as the other, and the other is dropped; so is one that cannot come to as little as a mapping
that is known. Nothing else is dropped, unless a run is told to look at few.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.search.bounds import Bounds
from dse.search.finished import Stage, points_of
from dse.search.growth import FROM_BUFFER, Growth, Stream, settle, waiting_streams
from dse.search.mapspace import Order
from dse.search.population import Array, Column, Population, Ranking, join, undominated
from dse.search.problem import KeepChoice, Point
from dse.search.rest import Rest
from dse.specs.mapspace import OBJECTIVES

CHUNK_ROWS = 1 << 18
"""Partial mappings priced in one go."""
POOL_ROWS = 1 << 19
"""Partial mappings that are held before the dominated ones among them are dropped: some 200 MB, and twice that while
they are joined. What survives is kept whole."""
FEW_ROWS = 1 << 12
"""Fewer rows than this are not worth looking through on their own."""
MOST_ORDERS = 1 << 12
"""More than the orders of the shared loops that a level may have."""
MARGIN = 1 + 1e-9
"""Known mappings are beaten by what costs less than this much more: sums differ by rounding."""


@dataclass(frozen=True)
class Beam:
    """How many rows a quick run keeps at each boundary, of all or of each kind apart."""

    rows: int
    apart: bool


@dataclass
class Run:
    """One run from the innermost level to the outermost; a `beam` limits what it keeps at each boundary.

    `limit` is what is known by metric: nothing that costs more is kept. Of an Einsum that others may be fused with, `rest`
    gives what those others come to at least, and each limit holds for the sum; rows then stay apart that differ in their
    shared loops or in what stays in the buffer, and if asked `by_tile`, in the buffer's tiles. `beside` is the rest by
    number of the set that the buffer keeps and by code of the extents, where that is known.
    """

    growth: Growth
    bounds: Mapping[Column, Bounds]
    objective: str
    front: tuple[str, ...]
    limit: Mapping[str, float]
    beam: Beam | None
    chunk: int
    progress: Callable[[float], None] = lambda share: None
    rest: Rest | None = None
    beside: Mapping[Column, Sequence[Array]] = field(default_factory=dict)
    by_tile: bool = False
    cut: Counter[str] = field(default_factory=Counter)
    priced: int = 0
    stages: list[Stage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.space = self.growth.space
        self.problem = self.space.problem
        self.sizes = self.growth.sizes
        busy = math.prod(int(ways.factors.prod(axis=1).max(initial=1)) for ways in self.space.fanouts)
        each_once = len(self.problem.tensors) == len(self.problem.names)
        self.floors = {
            "latency": self.growth.points * self.problem.operation_s / busy,
            "dram": sum(self.growth.elements) if self.problem.levels[0].is_dram and each_once else 0.0,
        }
        self.stays = list(dict.fromkeys(each.staying for choices in self.problem.keep_choices for each in choices))
        self.keep_choices = [] if self.problem.buffer is None else self.problem.keep_choices[self.problem.buffer]
        self.stage_count = len(self.problem.levels) + sum(bool(level.axes) for level in self.problem.levels)

    def run(self) -> Population | None:
        """Every stage in turn; the finished mappings, or None where none is left."""
        populations = self.finished()
        return join(populations) if populations else None

    def finished(self) -> list[Population]:
        """Every stage in turn; the finished mappings by kind."""
        populations = [self.growth.start()]
        self.remember(populations, len(self.problem.levels), spatial=False)
        for depth in reversed(range(len(self.problem.levels))):
            if self.problem.levels[depth].axes:
                populations = self.stage(self.spread(depth, populations), depth, spatial=True)
            populations = self.stage(self.step(depth, populations), depth, spatial=False)
        return populations

    def stage(self, parts: Iterator[Population], depth: int, *, spatial: bool) -> list[Population]:
        """Collect what a stage makes, drop what cannot be best, and remember the rest."""
        pools: dict[tuple[Column, ...], list[Population]] = {}
        rows, kept = 0, 0
        for part in parts:
            pools.setdefault(tuple(part.columns), []).append(part)
            rows += len(part)
            if rows > max(POOL_ROWS, 2 * kept):
                for kind, pool in pools.items():
                    pools[kind] = [self.surviving(join(pool), depth, spatial=spatial)]
                rows = kept = sum(len(pool[0]) for pool in pools.values())
        survivors = [self.surviving(join(pools[kind]), depth, spatial=spatial) for kind in sorted(pools, key=str)]
        populations = [population for population in survivors if len(population)]
        if self.beam is not None and self.beam.apart:
            populations = [
                piece for each in populations for piece in self.narrowed([each], self.beam.rows, depth, spatial=spatial)
            ]
        elif self.beam is not None:
            populations = self.narrowed(populations, self.beam.rows, depth, spatial=spatial)
        self.remember(populations, depth, spatial=spatial)
        return populations

    def remember(self, populations: Sequence[Population], depth: int, *, spatial: bool) -> None:
        """Log the survivors; from here on a row's origin is its place in this log."""
        if not populations:
            return
        whole = join([Population(each.extents, {}, each.origin, each.choice) for each in populations])
        self.stages.append(Stage(depth, spatial, whole.origin, whole.choice, whole.extents))
        end = 0
        for population in populations:
            population.origin = np.arange(end, end + len(population))
            end += len(population)

    def spread(self, depth: int, populations: Sequence[Population]) -> Iterator[Population]:
        """Every fan-out below a level."""
        factors = self.space.fanouts[depth].factors
        if not len(factors):
            return
        outer = math.prod(size for level in self.problem.levels[:depth] for _, size in level.axes)
        least_busy = self.problem.constraints.utilization * self.space.compute_units / outer
        last = outer == 1
        busy = factors.prod(axis=1).astype(np.float64)
        shared = factors[:, self.growth.reduced].prod(axis=1).astype(np.float64)
        divides = [
            self.space.grows(rank, own[:, None], factors[None, :, rank], spatial=True)
            for rank, own in enumerate(self.space.covers)
        ]
        for population in populations:
            positions = self.space.positions(population.extents)
            step = max(1, self.chunk // len(factors))
            for start in range(0, len(population), step):
                rows = slice(start, start + step)
                promised = population.columns["outputs",][rows, None]
                fits = promised == shared if last else promised % shared == 0
                for rank, table in enumerate(divides):
                    fits = fits & table[positions[rows, rank]]
                idle = fits & (population.columns["busy",][rows, None] * busy < least_busy)
                self.cut["utilization"] += int(idle.sum())
                origin, way = np.nonzero(fits & ~idle)
                if len(origin):
                    part = self.growth.spread(population.take(origin + start), factors[way])
                    part.choice = way
                    yield from self.counted([part], depth, spatial=True)

    def step(self, depth: int, populations: Sequence[Population]) -> Iterator[Population]:
        """Every set of loops of a level, in every order that matters, for every set of tensors kept."""
        bounds = self.needed_bounds() if self.limit and self.space.tabled else []
        for population in populations:
            waiting, seconds = waiting_streams(population), self.least_seconds(population, depth)
            serving = {bound.metric: bound.serving(population, depth, spread=True) for bound in bounds}
            for number, keep in enumerate(self.problem.keep_choices[depth]):
                served = {bound.metric: serving[bound.metric][bound.sets[depth][number]] for bound in bounds}
                for rows, extents, kinds in self.grown(depth, population, number, keep, seconds, served):
                    for kind in np.unique(kinds).tolist():
                        chosen = np.flatnonzero(kinds == kind)
                        parent, grown = population.take(rows[chosen]), extents[chosen]
                        tiles = self.growth.tiles(depth, grown, keep)
                        for place, order in enumerate(self.space.orders(depth, kind, waiting)):
                            if depth == 0 and self.problem.shared and self.held_between(order, waiting):
                                continue
                            part = self.growth.loop(parent, grown, order, waiting)
                            self.growth.close(depth, part, tiles, keep.ending)
                            if self.rest is not None and depth == self.problem.buffer:
                                self.add_rest(part, number)
                            if self.rest is not None and depth == 0:
                                codes = self.space.codes(parent.extents)
                                part.columns["shared",] = codes * MOST_ORDERS + place
                                self.add_shared_rest(part, parent.extents, order)
                            if depth == 0:
                                for stream in waiting_streams(part):
                                    settle(part, stream)
                            part.choice = np.full(len(part), self.space.encode(number, order))
                            yield from self.counted(self.growth.parts(part, depth), depth, spatial=False)

    def held_between(self, order: Order, waiting: Sequence[Stream]) -> bool:
        """Whether shared loops would leave a tile in place inside the buffer, where other Einsums run in between."""
        inner = {operand for operand, number in waiting if number < FROM_BUFFER}
        return bool(order) and any(order[0] not in self.space.hard[operand] for operand in inner)

    def grown(
        self,
        depth: int,
        population: Population,
        number: int,
        keep: KeepChoice,
        seconds: Array,
        served: Mapping[Column, Array],
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Rows, the extents that a level's loops may grow them to, and which loops those are (a bit a rank), in chunks.

        What fits neither this level nor a level further out, which must keep as much, is cut on the way, and in the end
        what cannot come to as little as is known: `seconds` and `served` is the least so far of times and other costs,
        where anything is.
        """
        bounds = [self.bounds[metric] for metric in served]
        outside = {bound.metric: bound.table(depth, smallest=False)[number] for bound in bounds}
        beyond = {bound.metric: bound.table(depth, smallest=True)[number] for bound in bounds}
        if any(not np.isfinite(table).any() for table in beyond.values()):
            self.cut["bound"] += len(population)
            return
        tables = self.space.multiples[depth]
        positions = self.space.positions(population.extents)
        most = np.ones(len(population))
        for rank, table in enumerate(tables):
            most = most * table.count[positions[:, rank]]
        ends = np.cumsum(most)

        def may(tables: Mapping[Column, Array], rows: Array, codes: Array) -> NDArray[np.bool_]:
            least = {name: table[codes] + served[name][rows] for name, table in tables.items()}
            hopeful = self.promising(self.metrics_of(least, seconds[rows], population, rows).__getitem__)
            self.cut["bound"] += len(hopeful) - int(hopeful.sum())
            return hopeful

        start = 0
        while start < len(population):
            before = ends[start - 1] if start else 0.0
            stop = max(start + 1, int(np.searchsorted(ends, before + self.chunk, "right")))
            rows = np.arange(start, stop)
            codes = positions[rows] @ self.space.radix
            if bounds:
                hopeful = may(beyond, rows, codes)
                rows, codes = rows[hopeful], codes[hopeful]
            extents = population.extents[rows]
            kinds = np.zeros(len(rows), dtype=np.int64)
            for rank, table in enumerate(tables):
                place = positions[rows, rank]
                counts = table.count[place]
                repeat = np.repeat(np.arange(len(rows)), counts)
                within = np.arange(len(repeat)) - np.repeat(np.cumsum(counts) - counts, counts)
                grown = table.start[place][repeat] + within
                steps = table.place[grown] - place[repeat]
                rows, codes = rows[repeat], codes[repeat] + steps * self.space.radix[rank]
                if bounds:
                    hopeful = may(outside if rank == len(tables) - 1 else beyond, rows, codes)
                    repeat, grown, steps = repeat[hopeful], grown[hopeful], steps[hopeful]
                    rows, codes = rows[hopeful], codes[hopeful]
                extents = extents[repeat]
                extents[:, rank] = table.flat[grown]
                kinds = kinds[repeat] | (steps != 0).astype(np.int64) << rank
                fits = self.fits(depth, keep.tiled, extents)
                if not fits.all():
                    self.cut["capacity"] += len(fits) - int(fits.sum())
                    rows, extents, codes, kinds = rows[fits], extents[fits], codes[fits], kinds[fits]
            if bounds and len(rows):
                least = {
                    bound.metric: outside[bound.metric][codes]
                    + bound.growing(population, rows, extents, depth, number, served[bound.metric])
                    for bound in bounds
                }
                hopeful = self.promising(self.metrics_of(least, seconds[rows], population, rows).__getitem__)
                self.cut["bound"] += len(hopeful) - int(hopeful.sum())
                rows, extents, codes, kinds = rows[hopeful], extents[hopeful], codes[hopeful], kinds[hopeful]
            if len(rows):
                yield rows, extents, kinds
            self.progress((len(self.stages) - 1 + stop / len(population)) / self.stage_count)
            start = stop

    def fits(self, depth: int, tiled: tuple[str, ...], extents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether tiles fit their level, and what levels further out must keep fits those."""
        fits: NDArray[np.bool_] = self.space.held(tiled, extents) <= self.problem.levels[depth].capacity
        for outer in range(depth):
            needed = self.space.required[outer]
            if needed and self.problem.levels[outer].capacity != math.inf:
                fits &= self.space.held(needed, extents) <= self.problem.levels[outer].capacity
        return fits

    def counted(self, parts: Sequence[Population], depth: int, *, spatial: bool) -> Iterator[Population]:
        """Count what was priced; of many rows, pass on those that may still become the best."""
        for part in parts:
            self.priced += len(part)
            yield part if len(part) < FEW_ROWS else self.surviving(part, depth, spatial=spatial)

    def surviving(self, population: Population, depth: int, *, spatial: bool) -> Population:
        """Rows that may still become the best."""
        population = self.promise_kept(population, depth)
        return self.pruned(self.within_bounds(population, depth, spatial=spatial), depth)

    def promise_kept(self, population: Population, depth: int) -> Population:
        """Without rows that promise fan-outs of outputs which those further out, or the sizes left, cannot give."""
        promised = population.columns["outputs",]
        if (promised == 1).all():
            return population
        left = self.space.rounds(population.extents)[:, self.growth.reduced].prod(axis=1)
        exact = not set(self.space.imperfect) & set(self.growth.reduced)
        keep = np.isin(promised, self.growth.shares(depth)) & (left % promised == 0 if exact else left >= promised)
        if keep.all():
            return population
        self.cut["fan-out"] += len(keep) - int(keep.sum())
        return population.take(keep)

    # ---- what is dropped

    def pruned(self, population: Population, depth: int) -> Population:
        """Without dominated rows. Rows compare where extents, the promise and the lie of sliding tiles are equal."""
        keys = [self.space.codes(np.minimum(population.extents, self.sizes)), population.columns["outputs",]]
        keys += [
            column
            for name, column in population.columns.items()
            if name[0] in ("slide", "idle", "stays", "shared", "tile")
        ]
        if self.problem.constraints.utilization and np.any(population.extents < self.sizes):
            keys.append(population.columns["busy",])
        keep = undominated(keys, self.ranking(population, depth), (population.origin, population.choice))
        self.cut["dominance"] += len(population) - len(keep)
        return population.take(keep)

    def ranking(self, population: Population, depth: int) -> Ranking:
        """The order of `OBJECTIVES`, or of a front, over what is settled and what is pending."""
        columns, rows = population.columns, len(population)
        seconds = [column for name, column in columns.items() if name == ("latency",) or "seconds" in name]
        names = [name for name in columns if name[0] == "open" or (name[0] == "pending" and name[2] != "seconds")]
        open_amounts = [columns[name] for name in names]
        amounts: dict[str, Any] = {
            "energy": columns["sum", "energy"],
            "latency": seconds,
            "capacity": columns["held",],
            "dram": columns.get(("sum", "dram"), np.zeros(rows)),
        }
        every = [columns["held",]] if self.rest is not None else []
        if self.front:
            every += [amounts[metric] for metric in self.front if metric != "latency"]
            every += seconds if "latency" in self.front else []
            first = [amounts[metric] for metric in self.front if metric != "latency"]
            rest = [amounts[metric] for metric in ("energy", "latency", "capacity") if metric not in self.front]
            return Ranking(every, open_amounts, [*first, *rest])
        if self.objective in ("latency", "edp"):
            return Ranking([*every, *seconds], open_amounts, [amounts["energy"], amounts["capacity"]])
        worth = [self.most_worth(name, depth) for name in names]
        return Ranking(
            every,
            open_amounts,
            [amounts[metric] for metric in OBJECTIVES[self.objective]],
            [*([0.0] * len(names) for _ in every), worth],
        )

    def most_worth(self, name: Column, depth: int) -> float:
        """What each unit of an open or pending amount can still come to in the objective, after the stage at `depth`."""
        metric: Column = (self.objective,)
        if name[0] == "pending":
            return float(name[2:] == metric)
        spec = self.problem.operands[name[1]]
        prices = [self.growth.price(outer, metric) for outer in range(depth + 1)]
        return max(read + write if spec.is_output else read for read, write in prices)

    def narrowed(self, populations: Sequence[Population], most: int, depth: int, *, spatial: bool) -> list[Population]:
        """The most promising rows alone."""
        if not populations:
            return []
        values = [
            np.concatenate([self.least_value(each, metric, depth, spatial=spatial) for each in populations])
            for metric in ("energy", self.objective)
        ]
        best = np.zeros(len(values[0]), dtype=bool)
        best[np.lexsort(values)[:most]] = True
        kept = []
        for population in populations:
            kept.append(population.take(best[: len(population)]))
            best = best[len(population) :]
        return [population for population in kept if len(population)]

    def within_bounds(self, population: Population, depth: int, *, spatial: bool) -> Population:
        """Without rows that cannot come to as little as what is known."""
        if not self.limit or not len(population):
            return population
        keep = self.promising(lambda metric: self.least_value(population, metric, depth, spatial=spatial))
        if keep.all():
            return population
        self.cut["bound"] += len(keep) - int(keep.sum())
        return population.take(keep)

    def promising(self, least: Callable[[str], Array]) -> NDArray[np.bool_]:
        """Rows whose least values do not rule them out: no more than the known mapping's objective, and where no less
        can come, no more of what breaks the tie."""
        first, second = OBJECTIVES[self.objective][:2]
        if self.rest is not None:
            within = [least(metric) <= most * MARGIN for metric, most in self.limit.items()]
            return np.asarray(np.logical_and.reduce(within), dtype=bool)
        values, known = least(first), self.limit[first]
        keep: NDArray[np.bool_] = values <= known * MARGIN
        level = keep if self.floors.get(first, 0.0) >= known / MARGIN else keep & (values >= known / MARGIN)
        if level.any():
            keep &= ~level | (least(second) <= self.limit[second] * MARGIN)
        return keep

    def needed_bounds(self) -> list[Bounds]:
        """The bounds that the objective and what breaks its ties first ask for."""
        ranked = OBJECTIVES[self.objective][:2] if self.rest is None else tuple(self.limit)
        return [
            bound
            for metric, bound in self.bounds.items()
            if (metric[0] == "seconds" and {"latency", "edp"} & set(ranked))
            or metric[0] in ranked
            or (metric[0] == "energy" and "edp" in ranked)
        ]

    def least_value(self, population: Population, metric: str, depth: int, *, spatial: bool) -> Array:
        """The least that a metric can come to for each row of the stage at `depth`."""
        asked = {"edp": ("energy", "seconds"), "latency": ("seconds",)}.get(metric, (metric,))
        least = {
            name: bound.least(population, depth if spatial else depth - 1, spread=spatial)
            for name, bound in self.bounds.items()
            if name[0] in asked
        }
        rows = np.arange(len(population))
        return self.metrics_of(least, self.least_seconds(population, depth), population, rows)[metric]

    def metrics_of(
        self, least: Mapping[Column, Array], seconds: Array, population: Population, rows: Array
    ) -> dict[str, Array]:
        """Least values by metric for rows of a population, from those of energy, DRAM traffic and each time, and the
        seconds known so far."""
        if self.rest is not None:
            least = {
                name: values + self.rest_of(name, population, bound=self.bounds[name])[rows]
                for name, values in least.items()
            }
        found = {name[0]: values for name, values in least.items() if name[0] != "seconds"}
        found["latency"] = np.maximum.reduce([seconds, *(each for name, each in least.items() if name[0] == "seconds")])
        if "energy" in found:
            found["edp"] = found["energy"] * found["latency"]
        return found

    def least_seconds(self, population: Population, depth: int) -> Array:
        """Seconds so far, if fan-outs further out divide them by all that they have."""
        outer = math.prod(size for level in self.problem.levels[:depth] for _, size in level.axes)
        latency: Array = population.columns["latency",] / outer
        if self.rest is not None:
            latency = latency + self.rest_of(("latency",), population)
        for name, column in population.columns.items():
            if name[:2] == ("sum", "seconds"):
                rest = 0.0 if self.rest is None else self.rest_of(name[1:], population)
                spared = population.columns.get(("first", *name[1:]), 0.0)
                latency = np.maximum(latency, (column + spared) / outer + rest)
        return latency

    # ---- what others come to

    def add_rest(self, part: Population, number: int) -> None:
        """Remember what the buffer keeps, and what others then come to at least."""
        if self.rest is None:
            return
        part.columns["stays",] = np.full(len(part), self.stays.index(self.keep_choices[number].staying))
        codes = self.space.codes(part.extents)
        if self.by_tile:
            part.columns["tile",] = codes * len(self.keep_choices) + number
        for column in self.rest.columns:
            known = self.beside.get(column)
            least = self.rest.least(column) if known is None else known[number][codes]
            part.columns["rest", column] = np.broadcast_to(least, len(part))

    def add_shared_rest(self, part: Population, inside: NDArray[np.int64], order: Order) -> None:
        """Remember what others come to at least, now that the loops that they share are known."""
        if self.rest is None:
            return
        held, columns = part.columns["held",], part.columns
        labels = columns.get(("stays",), np.zeros(len(part), dtype=np.int64))
        kind = columns["shared",] * len(self.stays) + labels
        for column in self.rest.columns:
            columns["rest", column] = np.full(len(part), np.inf)
        rows = np.argsort(kind, kind="stable")
        for own in np.split(rows, np.flatnonzero(np.diff(kind[rows])) + 1):
            loops, stays = self.problem.shared_loops(inside[own[0]].tolist(), order), self.stays[labels[own[0]]]
            for column in self.rest.columns:
                columns["rest", column][own] = self.rest.of(column, loops, stays, held[own])

    def rest_of(self, column: Column, population: Population, bound: Bounds | None = None) -> Array:
        """What others come to at least for each row; nothing where a bound holds it already."""
        known = population.columns.get(("rest", column))
        if known is not None:
            return known
        held = self.rest is None or (bound is not None and bound.beyond is not None)
        return np.full(len(population), 0.0 if held or self.rest is None else self.rest.least(column))

    def points(self, finished: Population) -> list[Point]:
        """The best of the finished mappings, or the front, with its costs."""
        ranked = self.front or OBJECTIVES[self.objective]
        return points_of(self.space, self.stages, finished, ranked, only_best=not self.front)
