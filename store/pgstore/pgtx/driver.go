package pgtx

import _ "github.com/perdure/perdure/store/pgstore" // a program with such steps can open postgres: URLs
