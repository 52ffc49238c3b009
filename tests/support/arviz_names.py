"""What differs for a reader between ArviZ before and since its version 1."""


def group_names(inference):
    """The groups of an InferenceData, or the children of a DataTree."""
    return set(inference.children if hasattr(inference, "children") else inference.groups())
