// Package demo is the command perdure demo: it kills a worker in the middle of a
// sentence, lets another one continue, and proves from two independent records that
// nothing ran twice. It may import anything but package cli.
package demo
