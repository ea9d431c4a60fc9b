"""Rates and groups by hand."""

from dataclasses import replace

import pytest

from transduce.planning.interconnect import Group, Network, groups_of

SQUARE = Network(
    places=tuple((x, y) for y in range(4) for x in range(4)),
    extents=(4, 4),
    closed=(False, True),
    link=10.0,
)
HOSTS = Network(
    places=((0, 0), (0, 0), (1, 0), (1, 0)),
    extents=(2, 1),
    closed=(False, False),
    link=40.0,
    between_hosts=5.0,
)
ROW, COLUMN, ALL = (0, 1, 2, 3), (0, 4, 8, 12), tuple(range(16))


@pytest.mark.parametrize(
    ("group", "rate"),
    [
        (ROW, 10.0),  # an open line: the last chip has one link
        (COLUMN, 20.0),  # a ring
        ((0, 4), 10.0),  # a part of it is none
        (ALL, 30.0),
        ((5,), 10.0),
    ],
)
def test_a_group_uses_the_links_of_the_dimensions_that_it_spans(group: Group, rate: float) -> None:
    assert SQUARE.rate(group) == rate


def test_gpus_of_one_host_have_their_links_and_others_the_network() -> None:
    assert HOSTS.rate((0, 1)) == 40.0
    assert HOSTS.rate((0, 1, 2, 3)) == 10.0
    assert HOSTS.rate((0, 2)) == 5.0
    assert HOSTS.rate((0, 1, 2)) == 5.0
    # Two ways out of each host for a sum over all; one each for what goes to every other.
    assert HOSTS.seconds("all-reduce", 400, [(0, 1, 2, 3)]) == 2 * 400 * 3 / 4 / 10
    assert HOSTS.seconds("all-to-all", 400, [(0, 1, 2, 3)]) == 400 * 3 / 4 / 5
    fast = replace(HOSTS, between_hosts=30.0)
    assert fast.rate((0, 1, 2, 3)) == 40.0


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("all-gather", 1200 * 3 / 4 / 20),
        ("reduce-scatter", 1200 * 3 / 4 / 20),
        ("all-reduce", 2 * 1200 * 3 / 4 / 20),
        ("all-to-all", 1200 * 3 / 4 / 20),  # a quarter of a ring of 4 is one link
    ],
)
def test_seconds_of_a_collective_over_a_ring_of_four(kind: str, seconds: float) -> None:
    assert SQUARE.seconds(kind, 1200, [COLUMN]) == pytest.approx(seconds)


def test_the_slowest_group_decides_and_one_chip_costs_nothing() -> None:
    assert SQUARE.seconds("all-gather", 400, [COLUMN, ROW]) == pytest.approx(400 * 3 / 4 / 10)
    assert SQUARE.seconds("all-reduce", 400, [(3,)]) == 0


def test_a_permutation_takes_as_long_as_its_longest_way() -> None:
    """From x 0 to x 3 on an open line: three links. From y 0 to y 3 of a ring: one."""
    assert SQUARE.seconds("collective-permute", 100, [(0, 3), (1, 1)]) == pytest.approx(30)
    assert SQUARE.seconds("collective-permute", 100, [(0, 12)]) == pytest.approx(10)


@pytest.mark.parametrize(
    ("attributes", "groups"),
    [
        (", replica_groups={{0,1},{2,3}}, to_apply=%add", [(0, 1), (2, 3)]),
        (", replica_groups=[2,2]<=[4], dimensions={0}", [(0, 1), (2, 3)]),
        (", replica_groups=[2,2]<=[2,2]T(1,0)", [(0, 2), (1, 3)]),
        (", replica_groups=mesh['a'=2,'b'=2] {'b'}, use_global_device_ids=true", [(0, 1), (2, 3)]),
        (", replica_groups=mesh['a'=2,'b'=2] {'a'}, to_apply=%add", [(0, 2), (1, 3)]),
        (", replica_groups=mesh['a'=4] {'a':(1)2}, to_apply=%add", [(0, 2), (1, 3)]),
        (", replica_groups=mesh['a'=4] {'a':(2)2}, to_apply=%add", [(0, 1), (2, 3)]),
        (", replica_groups={}, to_apply=%add", [(0, 1, 2, 3)]),
        (", channel_id=1", [(0, 1, 2, 3)]),
        (", source_target_pairs={{0,1},{1,2}}, channel_id=3", [(0, 1), (1, 2)]),
        (", replica_groups=?, to_apply=%add", None),
    ],
)
def test_every_way_to_write_groups_is_read(attributes: str, groups: list[Group] | None) -> None:
    assert groups_of(attributes, chips=4) == groups
