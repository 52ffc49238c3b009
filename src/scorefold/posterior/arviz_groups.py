"""Groups of arrays as ArviZ holds them, before and since its version 1.

Up to 0.23 `from_dict` takes each group as an argument and gives an `InferenceData`; since 1.0 it takes one dictionary of groups
and gives an xarray `DataTree`. Python 3.11 has only the first, later ones get the second. Where both are read alike
(`inference.posterior["beta"]`, `inference.to_netcdf(path)`, ArviZ's own functions), callers need not know which it is.
"""

from typing import Any

import numpy as np

Groups = dict[str, dict[str, np.ndarray]]


def inference_data(groups: Groups, attributes: dict[str, Any]) -> Any:
    """The groups as an InferenceData or a DataTree, with these attributes of the posterior."""
    import arviz

    groups = {group: {_without_slash(name): array for name, array in arrays.items()} for group, arrays in groups.items()}
    if int(arviz.__version__.split(".")[0]) < 1:
        arguments: dict[str, Any] = {**groups, "posterior_attrs": attributes}
        return arviz.from_dict(**arguments)
    return arviz.from_dict(groups, attrs={"posterior": attributes})


def _without_slash(name: str) -> str:
    """A tree of groups, and a netCDF file, take a slash for a path; the division slash looks the same."""
    return name.replace("/", "\N{DIVISION SLASH}")
