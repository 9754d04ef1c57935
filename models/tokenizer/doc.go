// Package tokenizer turns text into token ids and back, as the checkpoint's own tokenizer.json says, and renders
// conversations with the checkpoint's chat template. A tokenizer.json is a pipeline, and each part is a small type of
// its own:
//
//	normalizer      NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, Precompiled
//	pre-tokenizer   Split, ByteLevel, Digits, Punctuation, Metaspace, Whitespace and their kin
//	model           BPE over bytes or over characters with byte fallback, Unigram
//	post-processor  TemplateProcessing, ByteLevel, and BERT's and RoBERTa's, as far as they concern one text
//	decoder         ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace
//
// Ids and texts equal those of Hugging Face's tokenizers library, texts of conversations those of transformers'
// apply_chat_template (docs/tokenizers.md says how that is tested). Whatever would lead to other ids is refused by
// name.
//
// A Tokenizer does not change after it was made and may be used by many goroutines at once, as may a ChatTemplate; a
// Decoder by one.
package tokenizer
