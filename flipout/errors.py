"""Named refusals and warnings. A message says what was given, what was expected, and the line that fixes it."""


class FlipoutError(Exception):
    """Base of every error that this library raises on purpose."""


class InvalidArgument(FlipoutError, ValueError):
    """An argument is outside of what it may be (negative std, p = 1, unknown scheme name)."""


class AsymmetricDistribution(FlipoutError, ValueError):
    """Flipout needs a distribution that is symmetric about 0. Never possible otherwise."""


class NotGaussian(FlipoutError, ValueError):
    """Local reparameterisation needs Gaussian noise. Never possible otherwise."""


class NotLowRank(FlipoutError, ValueError):
    """Low-rank noise needs one standard deviation for the whole Parameter. Never possible otherwise."""


class SampledPerPosition(FlipoutError, ValueError):
    """Local reparameterisation would sample every position separately, and nobody asked for that."""


class WeightReused(FlipoutError, ValueError):
    """Local reparameterisation on a weight that several layers use. Never possible."""


class ExampleCount(FlipoutError, ValueError):
    """A layer met another number of examples than the draw has."""


class InvalidInput(FlipoutError, ValueError):
    """An input tensor has the wrong dtype or shape for the layer."""


class UnknownParameter(FlipoutError, ValueError):
    """`where` names a Parameter that no known layer can perturb, or names nothing."""


class AlreadyPerturbed(FlipoutError, ValueError):
    """`where` names a Parameter that is perturbed already."""


class Unsupported(FlipoutError, ValueError):
    """A layer has an option or a parametrisation under which its weights cannot be perturbed."""


class UnservedRead(FlipoutError, RuntimeError):
    """Code reads a perturbed Parameter outside of its layer in a way that has no result for each example."""


class InterleavedContexts(FlipoutError, RuntimeError):
    """Contexts on one model were left in another order than they were entered, as by generators that take turns."""


class NoExampleWeights(FlipoutError, RuntimeError):
    """There are no per-example weights to return."""


class NoPopulation(FlipoutError, ValueError):
    """A scheme under which the members of a population have no perturbations of their own to be told apart by."""


class NotPerturbed(FlipoutError, ValueError):
    """A model without perturbed layers was given where one with them is needed."""


class NoPrior(FlipoutError, ValueError):
    """A KL was asked for, of a Parameter that has no prior."""


class NonFinite(FlipoutError, ArithmeticError):
    """A loss is infinite or not a number."""


class AmbiguousReplay(FlipoutError, RuntimeError):
    """A checkpoint recomputes a block and the draw of its forward pass cannot be known."""


class BackendUnavailable(FlipoutError, RuntimeError):
    """A backend was asked for by name where it has no kernel that can serve."""


class DataError(FlipoutError, RuntimeError):
    """A data set or a file of a run is missing, corrupt or truncated, or cannot be downloaded."""


class RunError(FlipoutError, RuntimeError):
    """A run of an experiment cannot be started, or taken up again, in the folder it was given."""


class MissingExtra(FlipoutError, ImportError):
    """Something needs a package that comes with an extra of this library, and is not installed."""


class FleetError(FlipoutError, RuntimeError):
    """The workers of a fleet cannot be had, or die one after another."""


class FlipoutWarning(UserWarning):
    """Base of every warning of this library."""


class LeftPlain(FlipoutWarning):
    """`perturb` left weights without noise that a reader would expect to have it."""


class NeverRead(FlipoutWarning):
    """A forward pass did not read a Parameter that is perturbed."""


class LayoutUnknown(FlipoutWarning):
    """A batch did not show where a layer's input has its examples."""
