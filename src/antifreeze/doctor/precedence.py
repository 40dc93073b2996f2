"""Which finding explains which other: a cause is told, and what is a mere symptom of it is not. Pure.

A cause outranks its symptoms, though the symptom may be seen for certain and the cause be only likely. A cause that is no
more than possible explains only what is no more than possible either.
"""

from __future__ import annotations

from antifreeze.doctor.finding import Finding, Weight

# Cause: its symptoms. There are no cycles in it.
EXPLAINS: dict[str, tuple[str, ...]] = {
    # freezes
    "AF101": ("AF102", "AF103", "AF104", "AF106", "AF109", "AF110", "AF405"),
    "AF102": ("AF103", "AF104", "AF106", "AF109", "AF405"),
    "AF103": ("AF106", "AF109", "AF110"),
    "AF104": ("AF103", "AF106", "AF109", "AF403", "AF405"),
    "AF105": ("AF321", "AF323", "AF326"),
    "AF107": ("AF103", "AF106", "AF403", "AF405"),
    "AF108": ("AF106", "AF109", "AF405"),
    "AF109": ("AF321",),
    "AF111": ("AF103", "AF406"),
    "AF112": ("AF103", "AF106", "AF108", "AF109"),
    # memory and descriptors
    "AF203": ("AF103", "AF305", "AF321", "AF903"),
    "AF204": ("AF103", "AF305", "AF321", "AF326"),
    "AF205": ("AF312", "AF313", "AF321"),
    "AF206": ("AF207",),
    # what cannot cross, or is shared and should not be
    "AF301": ("AF314", "AF321", "AF403"),
    "AF303": ("AF103", "AF301", "AF305", "AF311", "AF312", "AF314"),
    "AF304": ("AF103", "AF301", "AF305", "AF311", "AF312", "AF314", "AF905"),
    "AF305": ("AF103", "AF321"),
    "AF306": ("AF103", "AF305", "AF321"),
    "AF307": ("AF302", "AF321", "AF322", "AF324", "AF326", "AF331", "AF333"),
    "AF308": ("AF302", "AF321", "AF322", "AF324", "AF326", "AF331", "AF333"),
    "AF309": ("AF302", "AF307", "AF321", "AF322", "AF326", "AF333"),
    # dead workers
    "AF311": ("AF103", "AF321", "AF405"),
    "AF312": ("AF103", "AF321", "AF405"),
    "AF313": ("AF103", "AF311", "AF312", "AF314", "AF321"),
    "AF314": ("AF103", "AF321", "AF405"),
    # data errors
    "AF322": ("AF321",),
    "AF323": ("AF314", "AF321"),
    "AF324": ("AF321", "AF322"),
    "AF325": ("AF321", "AF322"),
    "AF326": ("AF321",),
    "AF327": ("AF321",),
    "AF328": ("AF321", "AF322", "AF323", "AF326"),
    "AF329": ("AF321", "AF326"),
    "AF333": ("AF321", "AF322", "AF324", "AF326", "AF327"),
    # speed
    "AF402": ("AF404", "AF406"),
    "AF405": ("AF106",),
    # the machine
    "AF905": ("AF103", "AF311", "AF312", "AF314", "AF321"),
    "AF906": ("AF103", "AF305", "AF321"),
}
# Whatever hangs outlives its trainer. That is a problem of its own where a launcher ends trainers.
ONLY_IF_POSSIBLE = {("AF103", "AF106")}


def explains(cause: Finding, symptom: Finding) -> bool:
    """Whether the one is all that there is to tell about the other, because both are of the same loader."""
    if not cause.is_cause or symptom.code not in EXPLAINS.get(cause.code, ()):
        return False
    if (cause.code, symptom.code) in ONLY_IF_POSSIBLE and symptom.weight is not Weight.POSSIBLE:
        return False
    is_sure_enough = cause.weight <= max(Weight.LIKELY, symptom.weight)
    return is_sure_enough and (None in (cause.loader, symptom.loader) or cause.loader == symptom.loader)
