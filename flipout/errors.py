"""Errors and warnings of this library. A message says what was given, what was expected, and how to fix it."""


class FlipoutError(Exception):
    """Base class of all errors that this library raises."""


class InvalidArgument(FlipoutError, ValueError):
    """An argument has a value that is not allowed, such as a negative std, p = 1 or an unknown scheme name."""


class AsymmetricDistribution(FlipoutError, ValueError):
    """Flipout was combined with noise that is not symmetric about 0. It is exact for symmetric noise only."""


class NotGaussian(FlipoutError, ValueError):
    """Local reparameterisation was combined with noise that is not Gaussian. It is exact for Gaussian noise only."""


class NotLowRank(FlipoutError, ValueError):
    """Low-rank noise was asked for without one Gaussian standard deviation for the whole Parameter."""


class NotRankOne(FlipoutError, ValueError):
    """Rank-one flips were asked for without one standard deviation for the whole Parameter."""


class SampledPerPosition(FlipoutError, ValueError):
    """Local reparameterisation would sample every position separately, without `per_position=True`."""


class WeightReused(FlipoutError, ValueError):
    """Local reparameterisation was asked for a weight that is used more than once in a forward pass."""


class ExampleCount(FlipoutError, ValueError):
    """A layer received a different number of examples than the draw has."""


class InvalidInput(FlipoutError, ValueError):
    """An input tensor has the wrong dtype or shape for the layer."""


class UnknownParameter(FlipoutError, ValueError):
    """`where` selects no Parameter, or one that no known layer can perturb."""


class AlreadyPerturbed(FlipoutError, ValueError):
    """`where` selects a Parameter that is already perturbed."""


class Unsupported(FlipoutError, ValueError):
    """The library does not support this layer option, parametrisation, transform or call."""


class UnservedRead(FlipoutError, RuntimeError):
    """Code reads a perturbed Parameter outside its layer in a way that has no result for each example."""


class StaleCache(FlipoutError, RuntimeError):
    """Tokens are generated from a cache of keys and values that other weights have written. Use `hold`."""


class InterleavedContexts(FlipoutError, RuntimeError):
    """Contexts of one model were not left in the reverse order of entering, for example by interleaved generators."""


class NoExampleWeights(FlipoutError, RuntimeError):
    """No per-example weights exist: no draw is held, the batch is unknown, or the scheme samples outputs."""


class NoPopulation(FlipoutError, ValueError):
    """The scheme gives the members of a population no separate perturbations, so they cannot be compared."""


class NotPerturbed(FlipoutError, ValueError):
    """A model without perturbed layers was passed to a function that needs them."""


class NoPrior(FlipoutError, ValueError):
    """A KL divergence was asked for, but a Parameter has no prior."""


class NonFinite(FlipoutError, ArithmeticError):
    """A loss, fitness or update is infinite or NaN."""


class AmbiguousReplay(FlipoutError, RuntimeError):
    """A checkpoint recomputes a block, but the draw of its forward pass is unknown. Use `flipout.checkpoint`."""


class BackendUnavailable(FlipoutError, RuntimeError):
    """A backend was requested by name, but has no kernel for this operation and tensor."""


class DataError(FlipoutError, RuntimeError):
    """A data set or a file of a run is missing, corrupt or truncated, or its download failed."""


class RunError(FlipoutError, RuntimeError):
    """A run of an experiment cannot be started or resumed in the folder that was given."""


class MissingExtra(FlipoutError, ImportError):
    """A feature needs a package that is not installed. It comes with one of this library's extras."""


class FleetError(FlipoutError, RuntimeError):
    """The workers of a fleet cannot be started, or keep dying."""


class FlipoutWarning(UserWarning):
    """Base of every warning of this library."""


class ChangedMeaning(FlipoutWarning):
    """A name has another meaning than in the version before, and the call looks like one written for that version."""


class LeftPlain(FlipoutWarning):
    """`perturb` left weights without noise that a reader would expect to have it."""


class NeverRead(FlipoutWarning):
    """A forward pass did not read a Parameter that is perturbed."""


class LayoutUnknown(FlipoutWarning):
    """A batch did not show, or sizes do not show, where the input of a layer has its examples."""
