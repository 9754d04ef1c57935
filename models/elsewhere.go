package models

import (
	"os"
	"strings"
)

// Elsewhere says what to do with a name or path of a model that lies where this program does not read: a repository of
// the Hugging Face hub (org/model) and a GGUF file. It is "" for others, and for what exists as a directory.
func Elsewhere(name string) string {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return ""
	}
	shown := shorten(name)
	if strings.HasSuffix(strings.ToLower(name), ".gguf") {
		return "found " + shown +
			", a GGUF file, want safetensors: download the checkpoint that it was made from, and give " +
			giving("DIRECTORY")
	}
	org, model, ok := strings.Cut(strings.TrimPrefix(name, "https://huggingface.co/"), "/")
	if err == nil || !ok || !isHubName(org) || !isHubName(model) {
		return ""
	}
	repo := org + "/" + model
	return "found " + shown + ", a repository of the Hugging Face hub, want a directory: download it with hf download " +
		shorten(repo) +
		" --local-dir " + shorten(model) + ", and give " + giving(shorten(model))
}

// giving is how commands are given a directory with a checkpoint; some take its config.json alone.
func giving(dir string) string {
	return "--checkpoint " + dir + ", or --config " + dir + "/config.json"
}

// isHubName reports whether a part of a repository's name on the hub looks like s.
func isHubName(s string) bool {
	good := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
	}
	return s != "" && s[0] != '.' && !strings.ContainsFunc(s, func(r rune) bool { return !good(r) }) &&
		!strings.HasSuffix(s, ".json")
}
