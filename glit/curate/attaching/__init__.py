"""Annotations without pictures, and the pictures that a user has for them.

``annotations.py`` writes what tells pictures apart, ``published.py`` reads it;
``user_pictures.py`` looks at a user's files; ``search.py`` finds which are which (``found.py``
holds them): ``lookup.py`` proposes, ``align.py`` finds where one lies in the other
(``features.py``, ``matches.py``, ``placement.py``) and ``agreement.py`` whether it is that one.
``writer.py`` writes the rows, each moved into its picture's frame (``moved_row.py``);
``attach.py`` is the command.
"""
