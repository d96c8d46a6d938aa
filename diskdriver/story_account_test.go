package diskdriver

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// otherSecret is the secret of the other account's key, which must not show
// anywhere.
const otherSecret = "s3cr3t-of-the-other-account"

// otherAccount is another account of the same ECS, with nodes of its own.
func otherAccount(config ecssim.Config) ecssim.Config {
	config.Account, config.Seed = "2345678901234567", 1
	config.AccessKeys = map[string]string{"other": otherSecret, "other-2": otherSecret + "-2"}
	config.Instances = []ecssim.Instance{{ID: "i-other1", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}, {ID: "i-other2", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}}
	return config
}

// opener opens accounts as the program does.
type opener struct{ own *ecs.Client }

func (o opener) Account(secrets map[string]string) (ECS, error) { return o.own.Account(secrets) }

// secretsOf takes the words that are about secrets out of a command:
//
//	as=other           the other account's key
//	as=other-2         the key that it has beside
//	secret.KEY=VALUE   one secret
func (s *story) secretsOf(words []string) []string {
	s.secret = map[string]string{}
	var rest []string
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		key, single := strings.CutPrefix(name, "secret.")
		switch {
		case word == "as=other":
			maps.Copy(s.secret, map[string]string{"access-key-id": "other", "access-key-secret": otherSecret})
		case word == "as=other-2":
			maps.Copy(s.secret, map[string]string{"id": "other-2", "secret": otherSecret + "-2"})
		case single:
			s.secret[key] = value
		default:
			rest = append(rest, word)
		}
	}
	return rest
}

// account is the account that a command is about.
func (s *story) account() *ecssim.Server {
	if len(s.secret) > 0 {
		return s.other
	}
	return s.sim
}

// addSecrets gives a request the secrets of its command.
func (s *story) addSecrets(req proto.Message) {
	if len(s.secret) == 0 {
		return
	}
	field := req.ProtoReflect().Descriptor().Fields().ByName("secrets")
	if field == nil {
		s.t.Fatalf("%T has no secrets", req)
	}
	secrets := req.ProtoReflect().Mutable(field).Map()
	for key, value := range s.secret {
		secrets.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
	}
}
