"""Look for faults in datasets of glit and in published files.

kinds          the kinds of faults, each with a code and a sentence
findings       what was found: counts, examples, commands that repair
items          an image with its texts, boxes and spans, whatever it was read from
formats        the format of a file or folder, by its content
sources        items of published files, caption files, region files and image folders
rows           items of a dataset's rows
names          file names
boxes          boxes and the frame that they are in
pictures       image files
captions       single captions
repeats        captions repeated over images, exactly or nearly
hashed_sample  a sample of bounded size
scores         scores of captions with their own pictures
matches        captions of another picture, by a model
repairs        commands that repair
inspect        all of it in one pass

caption_statistics  lengths of the captions of published files, for ``glit stats``
"""
