package s3store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/perdure/perdure/store"
)

// Reasons why a bucket cannot hold a store. Errors of Open and of later calls match
// them.
var (
	// ErrCredentials: the service does not know the access key, or the secret key
	// does not belong to it.
	ErrCredentials = errors.New("s3store: the service does not accept the keys")

	// ErrDenied: the keys are good, but may not do what the store needs.
	ErrDenied = errors.New("s3store: no permission")

	// ErrNoBucket: there is no such bucket.
	ErrNoBucket = errors.New("s3store: no such bucket")

	// ErrNoStore: there is nothing under the prefix, and Options.Existing is set.
	ErrNoStore = errors.New("s3store: there is no store")

	// ErrClock: the clock of this machine differs too much from the service's.
	ErrClock = errors.New("s3store: the clock is wrong")

	// ErrUnsuited: the service ignores the conditions of writes, so that writers
	// would overwrite each other.
	ErrUnsuited = errors.New("s3store: the service has no conditional writes")

	// ErrVersioned: the bucket keeps old versions of its objects or locks them, so
	// that nothing could be erased.
	ErrVersioned = errors.New("s3store: the bucket keeps what is erased")

	// ErrThrottled: the service refuses requests because there are too many. It
	// also matches store.ErrUnavailable.
	ErrThrottled = fmt.Errorf("%w: s3store: too many requests", store.ErrUnavailable)
)

// refusedCondition reports whether err says that a condition did not hold, or that
// another request was faster: the object was not written.
func refusedCondition(err error) bool {
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		return false
	}
	return r.StatusCode == http.StatusPreconditionFailed || r.StatusCode == http.StatusConflict || r.Code == minio.PreconditionFailed || r.Code == minio.NoSuchKey
}

func isCode(err error, code string) bool {
	var r minio.ErrorResponse
	return errors.As(err, &r) && r.Code == code
}

// failed returns the error of a request that failed with err. If the service answered
// that it refuses the request, nothing was written. Otherwise the outcome of a write
// is unknown, and the error is store.ErrUnavailable.
func (b *bucket) failed(doing string, err error) error {
	var r minio.ErrorResponse
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: s3store: the service does not use TLS at this endpoint; write http:// or another port: %w", store.ErrInvalid, err)
	case errors.As(err, &untrusted) && !b.opened: // nobody will renew it
		return fmt.Errorf("%w: s3store: the certificate of the service is not trusted; add its authority to those of this machine: %w", store.ErrInvalid, err)
	case errors.As(err, &untrusted):
		return fmt.Errorf("%w: s3store: the certificate of the service is not trusted; add its authority to those of this machine: %w", store.ErrUnavailable, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: s3store: cannot %s bucket %s; a write may have happened: %w", store.ErrUnavailable, doing, b.name, err)
	case !errors.As(err, &r) || r.StatusCode == 0 && r.Code == "":
		return fmt.Errorf("%w: s3store: cannot %s bucket %s; a write may have happened: %w", store.ErrUnavailable, doing, b.name, err)
	}
	switch r.Code {
	case minio.NoSuchBucket:
		return fmt.Errorf("%w: %q; create it, or name another one: %w", ErrNoBucket, b.name, err)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "XAdminUserNotFound", "AuthorizationHeaderMalformed":
		return fmt.Errorf("%w; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and the region (%s): %w", ErrCredentials, r.Code, err)
	case "RequestTimeTooSkewed", "RequestExpired":
		return fmt.Errorf("%w; set it, best by NTP: %w", ErrClock, err)
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled", "TooManyRequests":
		return fmt.Errorf("%w; try again later: %w", ErrThrottled, err)
	case "EntityTooLarge", "KeyTooLongError":
		return fmt.Errorf("%w: s3store: the service does not hold objects of this size: %w", store.ErrTooLarge, err)
	case "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage":
		return fmt.Errorf("%w: s3store: the service has no space left; nothing was written: %w", store.ErrFull, err)
	}
	switch {
	case r.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%w; try again later: %w", ErrThrottled, err)
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized:
		right, purpose := b.needed(doing)
		return fmt.Errorf("%w to %s bucket %s; grant the keys %s, which a store needs %s (%s): %w", ErrDenied, doing, b.name, right, purpose, r.Code, err)
	case r.StatusCode == http.StatusNotImplemented:
		return fmt.Errorf("%w: s3store: cannot %s bucket %s: %w", ErrUnsuited, doing, b.name, err)
	case r.StatusCode >= 500 || r.StatusCode < 400 || r.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("%w: s3store: the service cannot %s bucket %s now; a write may have happened (%s): %w", store.ErrUnavailable, doing, b.name, r.Code, err)
	}
	return fmt.Errorf("s3store: cannot %s bucket %s (%s): %w", doing, b.name, r.Code, err)
}

// needed returns the permission of S3 without which a request is denied, and what a store
// makes such requests for.
func (b *bucket) needed(doing string) (right, purpose string) {
	objects := " on " + b.name + "/" + b.prefix + "*"
	switch doing {
	case "list":
		return "s3:ListBucket on bucket " + b.name, "to find its threads"
	case "read":
		return "s3:GetObject" + objects, "to read its threads"
	case "delete from":
		return "s3:DeleteObject" + objects, "to erase threads"
	}
	return "s3:PutObject" + objects, "for every write"
}
