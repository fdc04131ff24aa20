"""Published models that are files of tensors, or other folders, as folders of transformers."""
