//go:build !race

package perdure_test

const raceBuild = false
