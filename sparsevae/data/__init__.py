"""Data: loaders and generators that return plain arrays and, if it is known, the ground truth.

>>> from sparsevae import data
>>> data.names()
['birds', 'cal500', 'celeba', 'dbpedia', 'digit-canvas', 'digits', 'emotions', 'fashion-mnist', 'mnist', 'smiley',
 'smiley-authors', 'tiles', 'uci-har', 'yelp']
>>> data.load("digits")
Dataset('digits', X=(1438, 64) uint8, X_test=(359, 64) uint8, y, image_shape=(8, 8))
"""

from sparsevae.data.binarisation import binarise
from sparsevae.data.catalogue import Info, info, load, names
from sparsevae.data.dataset import Dataset
from sparsevae.data.files import Table, read_array
from sparsevae.data.readers.arff import read_arff
from sparsevae.data.readers.idx import read_idx
from sparsevae.data.readers.mulan import read_mulan
from sparsevae.data.sets import smiley, tiles

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
