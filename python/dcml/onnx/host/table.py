"""The operators that run on the host, by (domain, name).

HOST: those that always do where there is a program: (what they take, function).  The function gets the node and a
value for each input (None where absent) and returns the outputs.  What they take, input by input: t a tensor of
numbers, s of strings, x of either or of complex numbers, q a sequence, m a map, a anything; ? may be absent, * any
number of them.
VARIANTS: operators of the core that go by another name, in HOST, where their attributes are such.
FALLBACKS: operators of the core that are also defined on strings, sequences or optionals: a function
(node, segment of this node alone) -> function like those of HOST.
"""
from . import control, images, ml, sequences, shapes, strings, training
from .values import STRING

ML = "ai.onnx.ml"

HOST = {
    ("", "If"): ("t", control.if_),
    ("", "Loop"): ("t? t? a*", control.loop),
    ("", "Scan"): ("t? t*", control.scan),
    ("", "SequenceMap"): ("q a*", control.sequence_map),
    ("", "SequenceConstruct"): ("x*", sequences.construct),
    ("", "SequenceEmpty"): ("", sequences.empty),
    ("", "SequenceAt"): ("q t", sequences.at),
    ("", "SequenceInsert"): ("q x t?", sequences.insert),
    ("", "SequenceErase"): ("q t?", sequences.erase),
    ("", "SequenceLength"): ("q", sequences.length),
    ("", "SplitToSequence"): ("x t?", sequences.split),
    ("", "ConcatFromSequence"): ("q", sequences.concat_from),
    ("", "Optional"): ("a?", sequences.optional),
    ("", "OptionalHasElement"): ("a?", sequences.has_element),
    ("", "OptionalGetElement"): ("a?", sequences.get_element),
    ("", "NonZero"): ("x", shapes.non_zero),
    ("", "Unique"): ("x", shapes.unique),
    ("", "Compress"): ("x t", shapes.compress),
    ("", "NonMaxSuppression"): ("t t t? t? t?", shapes.non_max_suppression),
    ("", "CastToString"): ("x", strings.cast_to_string),
    ("", "StringConcat"): ("s s", strings.string_concat),
    ("", "StringSplit"): ("s", strings.string_split),
    ("", "StringNormalizer"): ("s", strings.string_normalizer),
    ("", "RegexFullMatch"): ("s", strings.regex_full_match),
    ("", "TfIdfVectorizer"): ("x", strings.tfidf),
    ("", "ImageDecoder"): ("t", images.image_decoder),
    ("ai.onnx.preview.training", "Gradient"): ("t*", training.gradient),
    (ML, "LabelEncoder"): ("x", ml.label_encoder),
    (ML, "CategoryMapper"): ("x", ml.category_mapper),
    (ML, "OneHotEncoder"): ("x", ml.one_hot_encoder),
    (ML, "DictVectorizer"): ("m", ml.dict_vectorizer),
    (ML, "CastMap"): ("m", ml.cast_map),
    (ML, "ZipMap"): ("t", ml.zip_map),
    (ML, "TextClassifier"): ("t", ml.text_classifier),
    (ML, "CoupledClassifier"): ("t", ml.svm_classifier),
}

VARIANTS = {("", "Cast"): ("CastToString", lambda attributes: attributes.get("to") == STRING)}
VARIANTS.update(((ML, op), ("TextClassifier", lambda attributes: attributes.get("classlabels_strings")))
                for op in ("LinearClassifier", "TreeEnsembleClassifier"))
VARIANTS[ML, "SVMClassifier"] = "CoupledClassifier", ml.needs_svm

FALLBACKS = {("", "Identity"): strings.same, ("", "Cast"): strings.cast, ("", "CastLike"): strings.cast_like}
FALLBACKS.update((("", op), strings.by_codes) for op in (
    "CenterCropPad", "Concat", "DepthToSpace", "Equal", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "OneHot", "Pad", "Reshape", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Shape", "Size", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"))
FALLBACKS[ML, "ArrayFeatureExtractor"] = strings.by_codes


def under_their_own_names():
    """(domain, operator) of what the host runs, without those that stand for variants of the core's."""
    variants = {op for op, _ in VARIANTS.values()}
    return [key for key in HOST if key[1] not in variants]
