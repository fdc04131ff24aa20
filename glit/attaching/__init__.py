"""Annotations without pictures, and the pictures that a user has for them.

``pictures.py`` writes what tells pictures apart; ``index.py`` looks at a user's files;
``search.py`` proposes which may be which; ``align.py`` finds where one lies in the other
(``matches.py``) and whether it is that one (``agreement.py``); ``moved_row.py`` moves a row there;
``attach.py`` is the command.
"""
