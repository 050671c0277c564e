// Package guide has the pages of the guide, in Markdown, and its tests are their code.
// It exports nothing and imports nothing of Perdure.
package guide
