"""Settings of the whole test session."""

import signal
from collections.abc import Iterator

import jax
import pytest

# Eight devices in this process alone: unlike XLA_FLAGS, the setting does not reach the programs
# that tests start. A test that wants one device takes jax.devices()[:1].
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
# A shell's background jobs ignore SIGINT, and so would the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# A vector that meets a matrix says by [None] along which axis it is repeated.
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs that tests start share a compilation cache, and leave the user's alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-goldens",
        action="store_true",
        help="write tests/goldens/ anew instead of comparing with it; look at the difference",
    )


@pytest.fixture
def x64():
    """float64 for the length of a test."""
    with jax.enable_x64(True):
        yield
