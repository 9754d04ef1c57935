package trace

import "regexp"

// generator is what files name that are written here.
const generator = "mkgen trace"

// What files begin with: those that name their generator, and those from before they did.
var (
	pageHead = regexp.MustCompile(
		`^<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n<meta name="(generator" content="mkgen trace"|viewport" content="width=1212"/>\n<title>)`)
	chromeHead = regexp.MustCompile(`^\{"displayTimeUnit":"ns","otherData":\{("generator":"mkgen trace",|"model":)`)
	svgHead    = regexp.MustCompile(
		`^<svg xmlns="http://www\.w3\.org/2000/svg" (data-generator="mkgen trace"|width="1180" height="[0-9.]+" viewBox="[0-9. ]+" role="img" aria-label="timeline)`)
)

// IsPage, IsChrome and IsSVG say whether a file is one that WritePage, WriteChrome or
// WriteSVG wrote, by its first 512 bytes or more.
func IsPage(head []byte) bool { return pageHead.Match(head) }

// IsChrome is described with IsPage.
func IsChrome(head []byte) bool { return chromeHead.Match(head) }

// IsSVG is described with IsPage.
func IsSVG(head []byte) bool { return svgHead.Match(head) }
