"""Read statements on the rights in a picture, from its metadata or from the user's files.

statements     all of it, as one record
xmp            properties of an XMP packet
c2pa           assertions of a C2PA manifest store
cbor           values of CBOR, which these assertions are written in
reservations   tdmrep.json and ai.txt, for paths of pictures
"""

from glit.inputs.rights.reservations import Reservations, read_reservations
from glit.inputs.rights.statements import MINING, RIGHTS, Rights, mining_of, read_rights

__all__ = [
    "MINING",
    "RIGHTS",
    "Reservations",
    "Rights",
    "mining_of",
    "read_reservations",
    "read_rights",
]
