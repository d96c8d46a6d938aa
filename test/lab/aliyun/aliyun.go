// Package aliyun stands for Alibaba Cloud's command line: it runs commands as a shell reads them, with keys of an operator's own.
package aliyun

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
)

// CLI calls what answers as ECS at an endpoint, such as http://127.0.0.1:8080, with an access key.
type CLI struct {
	Endpoint, KeyID, Secret string
}

// IsCommand says whether a command is one of the command line.
func IsCommand(command string) bool { return strings.HasPrefix(command, "aliyun ") }

// Run runs `aliyun ecs ACTION --PARAMETER VALUE ...`.
func (c CLI) Run(ctx context.Context, command string) error {
	out, err := exec.CommandContext(ctx, "/bin/sh", "-ec", "aliyun() { printf '%s\\0' \"$@\"; }\n"+command).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(words) < 2 || words[0] != "ecs" || len(words)%2 != 0 {
		return fmt.Errorf("%s: want aliyun ecs ACTION and parameters, each with a value", command)
	}
	parameters := map[string]string{}
	for i := 2; i < len(words); i += 2 {
		key, is := strings.CutPrefix(words[i], "--")
		if !is {
			return fmt.Errorf("%s: %q is no parameter", command, words[i])
		}
		parameters[key] = words[i+1]
	}
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return err
	}
	client, err := sdk.NewClientWithOptions(parameters["RegionId"], sdk.NewConfig(), credentials.NewAccessKeyCredential(c.KeyID, c.Secret))
	if err != nil {
		return err
	}
	r := requests.NewCommonRequest()
	r.Method, r.Scheme, r.Domain, r.Version, r.ApiName, r.QueryParams = "POST", endpoint.Scheme, endpoint.Host, "2014-05-26", words[1], parameters
	if _, err := client.ProcessCommonRequest(r); err != nil {
		return errors.Join(errors.New(command), err)
	}
	return nil
}
