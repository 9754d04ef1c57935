// Package rig is what the tests of task templates share: a small kernel around one template, the memory that it runs
// on, and comparisons of what it computes. Only tests import it.
package rig
