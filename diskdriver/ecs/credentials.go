package ecs

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Keys are what a call is signed with. SecurityToken is set for temporary keys
// alone.
type Keys struct {
	AccessKeyID     string
	AccessKeySecret string
	SecurityToken   string
}

// String hides the keys, so that no log shows them by accident.
func (Keys) String() string { return "ecs.Keys(hidden)" }

// GoString hides the keys.
func (k Keys) GoString() string { return k.String() }

// Credentials is a source of keys. It is asked before every call.
type Credentials interface {
	// Get returns the keys of now. An error names what is missing, never a value.
	Get(ctx context.Context) (Keys, error)
}

// Static returns credentials that never change.
func Static(keys Keys) Credentials { return static(keys) }

type static Keys

func (s static) Get(context.Context) (Keys, error) {
	switch {
	case s.AccessKeyID == "":
		return Keys{}, errors.New("the access key ID is empty")
	case s.AccessKeySecret == "":
		return Keys{}, errors.New("the access key secret is empty")
	}
	return Keys(s), nil
}

// The environment variables that hold credentials, under the names that all
// tools of Alibaba Cloud read.
const (
	idVariable     = "ALIBABA_CLOUD_ACCESS_KEY_ID"
	secretVariable = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"
	tokenVariable  = "ALIBABA_CLOUD_SECURITY_TOKEN"
)

// Environment returns the credentials in ALIBABA_CLOUD_ACCESS_KEY_ID,
// ALIBABA_CLOUD_ACCESS_KEY_SECRET and, for temporary keys,
// ALIBABA_CLOUD_SECURITY_TOKEN.
func Environment() Credentials { return environment{} }

type environment struct{}

func (environment) Get(context.Context) (Keys, error) {
	keys := Keys{AccessKeyID: os.Getenv(idVariable), AccessKeySecret: os.Getenv(secretVariable), SecurityToken: os.Getenv(tokenVariable)}
	switch {
	case keys.AccessKeyID == "":
		return Keys{}, fmt.Errorf("environment variable %s is empty", idVariable)
	case keys.AccessKeySecret == "":
		return Keys{}, fmt.Errorf("environment variable %s is empty", secretVariable)
	}
	return keys, nil
}
