"""Read a build's inputs: images in folders, lists, tars and tables; your captions and regions.

source.py          the images that a folder, a glob, a list or an address holds
files.py           reads an image or the file beside it, also inside a shard
tar.py             WebDataset tars: a member is a range of bytes
table.py           Parquet files: an image lies in a row group
user_captions.py   a file of captions, of one kind or several
user_tables.py     reads such files in any of their forms and sorts them by path
lookup.py          their rows by image, in a worker
region_file.py     what a user says of the regions of one image
"""
