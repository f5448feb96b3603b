"""How the documents are built: `make docs`."""

import tunnel

project = "txkas"
author = "The txkas authors"
copyright = "2026, The txkas authors"
version = release = tunnel.__version__

extensions = ["sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "txkas"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
default_role = "code"
nitpicky = False
