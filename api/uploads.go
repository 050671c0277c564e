package api

import (
	"net/http"

	"github.com/perdure/perdure"
)

// CreateUpload uploads a file, which is the body.
type CreateUpload struct {
	MIME   string `header:"Content-Type" json:"-" jsonschema:"media type of the file; application/octet-stream by default"`
	Digest string `header:"Content-Digest" json:"-" jsonschema:"sha-256=:BASE64: as in RFC 9530; a body with another digest is refused"`
	Name   string `query:"name" json:"-" jsonschema:"name of the file, without a path"`
	User   string `query:"user" json:"-" jsonschema:"its owner; the token's subject by default"`
}

// OneUpload names an upload.
type OneUpload struct {
	Upload string `path:"upload" json:"-" jsonschema:"id of the upload"`
}

// TypeAny stands for a body of any media type.
const TypeAny = "*/*"

// Operations on uploads.
var (
	UploadsCreate = define[CreateUpload, perdure.Upload]("uploads.create", "POST /v1/uploads", ScopeRun,
		"upload an image or file", takes(TypeAny), status(http.StatusCreated),
		doc("The body is the file, as it is and not in a form: multipart bodies are refused with 415. A start, an answer or a signal that lists the id in attach can refer to it with {\"media\": {\"blob\": BLOB}} in its value. An upload expires after a day; the threads that it was attached to keep a copy."))
	UploadsDelete = define[OneUpload, None]("uploads.delete", "DELETE /v1/uploads/{upload}", ScopeRun,
		"remove an upload before it expires")
)
