// Package s3url reads what names a place in a bucket, and who uses it, for stores and
// archives. It imports nothing of Perdure.
package s3url

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// Place is the part of a bucket under a prefix, which is "" or ends with a slash.
type Place struct{ Bucket, Prefix string }

// Parse reads a URL of the form s3://BUCKET/PREFIX, and sets the parameters that it
// has, of those that there are. A prefix may have so many bytes, its slash included.
func Parse(text string, maxPrefix int, parameters map[string]*string) (p Place, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return p, errors.New("the URL of the bucket cannot be read")
	case u.User != nil:
		return p, fmt.Errorf("the URL of bucket %s holds keys, which would end up in logs; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead", u.Host)
	case u.Host == "" || u.Port() != "" || u.Fragment != "":
		return p, errors.New("the URL names no bucket")
	}
	if err := s3utils.CheckValidBucketName(u.Host); err != nil {
		return p, fmt.Errorf("%q cannot be the name of a bucket: %w", u.Host, err)
	}
	for key, values := range u.Query() {
		to := parameters[key]
		if to == nil {
			return p, fmt.Errorf("the URL of bucket %s has an unknown parameter %q", u.Host, key)
		}
		*to = values[0]
	}
	p = Place{Bucket: u.Host}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if p.Prefix = prefix + "/"; len(p.Prefix) > maxPrefix {
			return p, fmt.Errorf("the prefix in bucket %s has %d bytes, but at most %d leave room for names", u.Host, len(p.Prefix), maxPrefix)
		}
		if slices.ContainsFunc(strings.Split(prefix, "/"), func(part string) bool { return part == "" || part == "." || part == ".." }) {
			return p, fmt.Errorf("the prefix %q has a part that is empty or a dot", prefix)
		}
	}
	return p, nil
}

const amazon = "https://s3.amazonaws.com"

// Service says where a bucket is, and who uses it.
type Service struct {
	Endpoint                           string // "": $AWS_ENDPOINT_URL, or Amazon S3
	Region                             string // "": $AWS_REGION, or the service is asked
	AccessKey, SecretKey, SessionToken string // "": of the environment, of ~/.aws/credentials or, on Amazon S3, of the machine
}

// Address is a service as its client library needs it.
type Address struct {
	Host   string
	Secure bool
	Region string
	Keys   *credentials.Credentials
}

// Address completes and checks a service. It does not call it.
func (s Service) Address() (*Address, error) {
	endpoint := cmp.Or(s.Endpoint, os.Getenv("AWS_ENDPOINT_URL"), amazon)
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the endpoint cannot be read, or holds more than an address; write it like https://s3.example, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("the endpoint %q is not the URL of a service; write it like https://s3.example", endpoint)
	}
	keys := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if endpoint == amazon {
		keys = append(keys, &credentials.IAM{})
	}
	if s.AccessKey != "" {
		keys = []credentials.Provider{&credentials.Static{Value: credentials.Value{
			AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey, SessionToken: s.SessionToken, SignerType: credentials.SignatureV4,
		}}}
	}
	return &Address{u.Host, u.Scheme == "https", cmp.Or(s.Region, os.Getenv("AWS_REGION")), credentials.NewChainCredentials(keys)}, nil
}
