import pytest

from transduce.parallel.hardware import CHIPS, chip_named, chip_of, peak_rate


@pytest.mark.parametrize(
    ("kind", "name", "rate"),
    [
        ("TPU v5 lite", "v5e", 197e12),
        ("TPU v5e", "v5e", 197e12),
        ("TPU v5", "v5p", 459e12),
        ("TPU v5p", "v5p", 459e12),
        ("TPU v6 lite", "v6e", 918e12),
        ("TPU v6e", "v6e", 918e12),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb", 312e12),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb", 312e12),
        ("NVIDIA H100 80GB HBM3", "h100", 989.4e12),
        ("NVIDIA H200", "h200", 989.4e12),
    ],
)
def test_a_chip_is_found_by_what_jax_calls_it(kind: str, name: str, rate: float) -> None:
    chip = chip_of(kind)
    assert chip is not None
    assert chip.name == name
    assert peak_rate(kind, "bfloat16") == rate


@pytest.mark.parametrize("kind", ["cpu", "TPU v2", "NVIDIA H100 PCIe", ""])
def test_what_is_not_in_the_table_has_no_rate(kind: str) -> None:
    assert chip_of(kind) is None
    assert peak_rate(kind, "bfloat16") is None


def test_float32_goes_as_jax_multiplies_it_by_default() -> None:
    assert peak_rate("TPU v5p", "float32") == 459e12  # in one pass of bfloat16
    assert peak_rate("NVIDIA H100 80GB HBM3", "float32") == 494.7e12  # in TF32
    assert peak_rate("TPU v5p", "float64") is None


def test_no_two_chips_have_a_name_in_common() -> None:
    names = [name for chip in CHIPS for name in (chip.name, *chip.kinds)]
    assert len(set(names)) == len(names)


def test_figures_are_in_the_units_that_are_said() -> None:
    """Within the range of what is sold: a slip of a prefix or from bits to bytes leaves it."""
    for chip in CHIPS:
        assert 100e12 < chip.rates["bfloat16"] < 1000e12
        assert 16 * 2**30 <= chip.memory <= 141 * 2**30
        assert 0.8e12 < chip.bandwidth < 5e12
        assert 0.4e12 <= chip.links <= 1.2e12
        assert chip.source


def test_links_of_a_tpu_are_those_of_its_torus() -> None:
    """v5e and v6e have 4 links, v5p 6: 50, 100 and 100 GB/s in each direction."""
    links = {chip.name: chip.links for chip in CHIPS}
    assert links["v5e"] == 4 * 2 * 50e9
    assert links["v6e"] == 4 * 2 * 100e9
    assert links["v5p"] == 6 * 2 * 100e9


def test_a_link_has_its_share_in_one_direction() -> None:
    rates = {chip.name: chip.link for chip in CHIPS}
    assert rates["v5e"] == 50e9
    assert rates["v5p"] == rates["v6e"] == 100e9
    assert rates["h200"] == 450e9  # all 18 of NVLink, into one GPU


def test_a_tpus_clock_is_that_of_its_arrays() -> None:
    """v5e: 4 arrays of 128 x 128; v5p: 8; v6e: 4 of 256 x 256."""
    clocks = {chip.name: chip.clock for chip in CHIPS}
    assert clocks["v5e"] == pytest.approx(1.5e9, rel=0.01)
    assert clocks["v5p"] == clocks["v6e"] == pytest.approx(1.75e9, rel=0.01)
    assert clocks["h200"] is None


def test_a_chip_is_found_by_its_own_name() -> None:
    chip = chip_named("v5p")
    assert chip is not None
    assert chip.kinds == ("TPU v5", "TPU v5p")
    assert chip_named("v5") is None
