"""Data: loaders and generators that return plain arrays and, where there is one, the ground truth.

>>> from sparsevae import data
>>> data.names()
['birds', 'cal500', 'celeba', 'dbpedia', 'digit-canvas', 'digits', 'emotions', 'fashion-mnist', 'mnist', 'smiley',
 'smiley-authors', 'tiles', 'uci-har', 'yelp']
>>> data.load("digits")
Dataset('digits', X=(1438, 64) uint8, X_test=(359, 64) uint8, y, image_shape=(8, 8))
"""

from . import smiley, tiles
from .arff import read_arff
from .binarisation import binarise
from .catalogue import Info, info, load, names
from .dataset import Dataset
from .files import Table, read_array
from .idx import read_idx
from .mulan import read_mulan

__all__ = [
    "Dataset",
    "Info",
    "Table",
    "binarise",
    "info",
    "load",
    "names",
    "read_arff",
    "read_array",
    "read_idx",
    "read_mulan",
    "smiley",
    "tiles",
]
