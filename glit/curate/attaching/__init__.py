"""Annotations without pictures, and the pictures that a user has for them.

``annotations.py`` writes what tells pictures apart, ``published.py`` reads it;
``user_pictures.py`` lists a user's files; ``search.py`` finds which are which and keeps that in the
work file (``work_file.py``): ``lookup.py`` proposes, ``align.py`` finds where one picture lies in
the other (``picture.py``, ``placement.py``), and ``differences.py`` whether it is that one.
``choice.py`` takes the best of each sample; ``writer.py`` writes the rows, each moved into its
picture's frame (``moved_row.py``); ``attach.py`` is the command.
"""
