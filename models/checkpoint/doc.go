// Package checkpoint reads the weights of a Hugging Face checkpoint directory:
// config.json with model.safetensors, or with model.safetensors.index.json and
// the shards that it names.
//
// Open maps the files into memory and validates their headers against the
// configuration, so that whatever is missing, extra, misshapen, of another type,
// truncated or corrupt is refused by name before anything is launched; Row then
// delivers rows as bf16, whatever the type on disk, and Check looks for weights
// that are not finite. OpenFS does the same for a small checkpoint in a file
// system, which it reads into memory. WriteSafetensors writes one file.
//
// Nothing but headers is copied to the heap: the pages of the files belong to the
// operating system, which may take them back. The files must not change while a
// Checkpoint is open. One that shrinks, or whose device fails, makes the reading
// call return an error instead of killing the process; one that is overwritten in
// place cannot be noticed and delivers whatever it now holds.
package checkpoint
