"""The operators that run on the host, by (domain, name).

HOST: always; a function (node, *inputs) -> outputs.
FALLBACKS: those of the core's operators that are also defined on strings, sequences or optionals; a function
(node, segment of this node alone) -> function like those of HOST.
"""
from . import attention, control, images, ml, sequences, shapes, strings, training

ML = "ai.onnx.ml"

HOST = {
    ("", "If"): control.if_, ("", "Loop"): control.loop, ("", "Scan"): control.scan,
    ("", "SequenceMap"): control.sequence_map,
    ("", "SequenceConstruct"): sequences.construct, ("", "SequenceEmpty"): sequences.empty,
    ("", "SequenceAt"): sequences.at, ("", "SequenceInsert"): sequences.insert,
    ("", "SequenceErase"): sequences.erase, ("", "SequenceLength"): sequences.length,
    ("", "SplitToSequence"): sequences.split, ("", "ConcatFromSequence"): sequences.concat_from,
    ("", "Optional"): sequences.optional, ("", "OptionalHasElement"): sequences.has_element,
    ("", "OptionalGetElement"): sequences.get_element,
    ("", "NonZero"): shapes.non_zero, ("", "Unique"): shapes.unique, ("", "Compress"): shapes.compress,
    ("", "NonMaxSuppression"): shapes.non_max_suppression,
    ("", "CastToString"): strings.cast_to_string,
    ("", "StringConcat"): strings.string_concat, ("", "StringSplit"): strings.string_split,
    ("", "StringNormalizer"): strings.string_normalizer, ("", "RegexFullMatch"): strings.regex_full_match,
    ("", "TfIdfVectorizer"): strings.tfidf,
    ("", "ImageDecoder"): images.image_decoder,
    ("ai.onnx.preview", "FlexAttention"): attention.flex_attention,
    ("ai.onnx.preview.training", "Gradient"): training.gradient,
    (ML, "LabelEncoder"): ml.label_encoder, (ML, "DictVectorizer"): ml.dict_vectorizer,
    (ML, "CategoryMapper"): ml.category_mapper, (ML, "ZipMap"): ml.zip_map, (ML, "CastMap"): ml.cast_map,
    (ML, "OneHotEncoder"): ml.one_hot_encoder,
}

FALLBACKS = {("", "Identity"): strings.same, ("", "Cast"): strings.cast, ("", "CastLike"): strings.cast_like}
FALLBACKS.update((("", op), strings.by_codes) for op in (
    "Concat", "Equal", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "OneHot", "Pad", "Reshape",
    "ReverseSequence", "ScatterElements", "ScatterND", "Scatter", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze", "Where"))
