"""How experiments read and write files: by the functions of the library, in one place."""

from flipout._files import append as append
from flipout._files import is_unfinished as is_unfinished
from flipout._files import read_plain as read_plain
from flipout._files import remove_unfinished as remove_unfinished
from flipout._files import replacing as replacing
from flipout._files import write_atomically as write_atomically
from flipout._tensor_files import load_tensors as load_tensors
from flipout._tensor_files import pack_tensors as pack_tensors
from flipout._tensor_files import read_tensor_file as read_tensor_file
from flipout._typed import SHORT as SHORT
from flipout._typed import Mismatch as Mismatch
from flipout._typed import in_one_line as in_one_line
from flipout._typed import parse_json as parse_json
from flipout._typed import typed as typed
