"""An objective of training, and a task of evaluation."""

from dataclasses import dataclass

from glit.plain import limited
from glit.training.losses import contrastive
from glit.training.objective import InputSpec, Objective, global_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class LongAndFirst(Objective):
    """The global loss, plus the same loss with the caption's first sentence."""

    lambda_first: float = limited(0.1, least=0)
    """Weight of the second term; a key of [train]."""

    @property
    def needs(self):
        """The loader decodes and tokenises this and nothing else."""
        return InputSpec(num_texts=1)

    def texts(self, caption, sentences, draw, short=None):
        """The first sentence."""
        start, end = sentences[0]
        return [caption[start:end]]

    def __call__(self, features, logit_scale):
        """The loss, and figures for metrics.jsonl."""
        valid_N = features.valid_N & features.valid_further_NS[:, 0]
        first_ND = features.further_text_NSD[:, 0]
        first = contrastive(features.image_ND, first_ND, logit_scale, valid_N)
        loss = global_loss(features, logit_scale) + self.lambda_first * first
        return loss, {"loss_first": first.detach()}


def words(embedder, collection, config):
    """How far captions and their first words lie apart, as a mean cosine."""
    texts = [captions[0] for captions in collection.captions]
    whole = embedder.texts(texts)
    first = embedder.texts([" ".join(text.split()[:5]) for text in texts])
    return {"cosine": float((whole * first).sum(dim=1).mean()), "captions": float(len(texts))}
