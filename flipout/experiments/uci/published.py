"""MC dropout as published: Gal and Ghahramani (2016), at 10 times the usual epochs.

The per-split results of their repository, averaged: mean and standard error over the splits. The splits are the ones
used here. Their repository gives naval-propulsion-plant's RMSE with one digit and no error.
"""

# name → (RMSE, its error), (log-likelihood, its error)
PUBLISHED: dict[str, tuple[tuple[float, float | None], tuple[float, float]]] = {
    "bostonHousing": ((2.904, 0.177), (-2.402, 0.042)),
    "concrete": ((4.826, 0.161), (-2.937, 0.025)),
    "energy": ((0.539, 0.014), (-1.212, 0.005)),
    "kin8nm": ((0.079, 0.001), (1.136, 0.007)),
    "naval-propulsion-plant": ((0.001, None), (4.450, 0.002)),
    "power-plant": ((4.014, 0.037), (-2.808, 0.009)),
    "protein-tertiary-structure": ((4.274, 0.021), (-2.871, 0.001)),
    "wine-quality-red": ((0.622, 0.008), (-0.928, 0.013)),
    "yacht": ((0.666, 0.049), (-1.250, 0.015)),
}
