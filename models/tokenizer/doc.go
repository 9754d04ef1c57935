// Package tokenizer turns text into token ids and back, as the checkpoint's own tokenizer.json says, and renders conversations with the
// checkpoint's chat template. It reads byte-level BPE tokenizers configured as Llama 3's:
//
//	pre-tokenizer   Split by a regular expression, then ByteLevel
//	model           BPE, with or without ignore_merges
//	post-processor  TemplateProcessing that puts special tokens before and after a text
//
// Ids and texts equal those of Hugging Face's tokenizers library, texts of conversations those of transformers' apply_chat_template.
// Whatever would lead to other ids (normalizers, other models, other pre-tokenizers, tokens that swallow spaces) is refused by name.
//
// A Tokenizer does not change after it was made and may be used by many goroutines at once, as may a ChatTemplate; a Decoder by one.
package tokenizer
