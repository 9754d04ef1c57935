package models

import (
	"os"
	"strings"
)

// Elsewhere says what to do with a name or path of a model that lies where this program does not read: a repository of
// the Hugging Face hub (org/model, with or without the hub's address and a tag), a GGUF file, a repository or directory
// of them. It is "" for others, and for a directory with anything else.
func Elsewhere(name string) string {
	info, err := os.Stat(name)
	isDir := err == nil && info.IsDir()
	org, model, isHub := hubName(name)
	isHub = isHub && err != nil
	switch lower := strings.ToLower(name); {
	case isDir && hasOnlyGGUF(name):
		return wantSafetensors(name, "a directory of GGUF files")
	case isDir:
		return ""
	case strings.HasSuffix(lower, ".gguf"):
		return wantSafetensors(name, "a GGUF file")
	case isHub && strings.HasSuffix(strings.ToLower(model), "-gguf"):
		return wantSafetensors(name, "a repository of GGUF files")
	case isHub:
		return "found " + shorten(name) + ", a repository of the Hugging Face hub, want a directory: download it with " +
			"hf download " + shorten(org+"/"+model) + " --local-dir " + shorten(model) + ", and give " +
			giving(shorten(model))
	}
	return ""
}

func wantSafetensors(name, what string) string {
	return "found " + shorten(name) + ", " + what +
		", want safetensors: download the checkpoint that it was made from, and give " + giving("DIRECTORY")
}

// hasOnlyGGUF reports whether a directory has GGUF files and neither a config.json nor safetensors.
func hasOnlyGGUF(dir string) bool {
	entries, err := os.ReadDir(dir)
	found := false
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		if name == "config.json" || strings.HasSuffix(name, ".safetensors") {
			return false
		}
		found = found || strings.HasSuffix(name, ".gguf")
	}
	return err == nil && found
}

// hubName takes a repository's name on the hub out of an address, a path below this directory or a name with a tag such
// as :Q4_K_M.
func hubName(name string) (org, model string, ok bool) {
	name, isPath := strings.CutPrefix(name, "./")
	name, isAddress := strings.CutPrefix(strings.TrimPrefix(name, "https://"), "huggingface.co/")
	if !isAddress {
		name, isAddress = strings.CutPrefix(name, "hf.co/")
	}
	org, model, ok = strings.Cut(strings.TrimSuffix(name, "/"), "/")
	if isAddress {
		model, _, _ = strings.Cut(model, "/") // /tree/main behind it
	}
	if _, err := os.Stat(org); isPath && err == nil {
		return "", "", false // a file that is not in a directory that is
	}
	model, _, _ = strings.Cut(model, ":")
	return org, model, ok && isHubName(org) && isHubName(model)
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
