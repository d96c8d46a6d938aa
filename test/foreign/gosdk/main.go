// Gosdk is a client of ECS that uses the Go SDK of Alibaba Cloud and nothing of topodisk.
//
//	gosdk life                     leads disks and snapshots through all of their lives, and holds every reply against the documentation
//	gosdk load CLIENTS DURATION    has so many clients make, attach, find, detach and delete disks at the same time
//
// The environment says where: ECS_ADDRESS (HOST:PORT), ECS_REGION, ECS_ZONE, ECS_INSTANCE (for load several, separated by
// commas), ECS_ROLE (the name of a RAM role that the key may assume, for life), and the access key in ECS_KEY_ID and ECS_KEY_SECRET. The last line of the output says how many calls were made
// and how many were as expected; the exit code is 0 if all were.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
)

// place is where the clients work.
type place struct {
	address, region, zone string
	role                  string // that the key may assume
	instances             []string
}

func main() {
	p := place{os.Getenv("ECS_ADDRESS"), os.Getenv("ECS_REGION"), os.Getenv("ECS_ZONE"), os.Getenv("ECS_ROLE"), strings.Split(os.Getenv("ECS_INSTANCE"), ",")}
	keys := credentials.NewAccessKeyCredential(os.Getenv("ECS_KEY_ID"), os.Getenv("ECS_KEY_SECRET"))
	var all bool
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "life":
		all = live(p, keys)
	case len(args) == 3 && args[0] == "load":
		clients, err := strconv.Atoi(args[1])
		duration, err2 := time.ParseDuration(args[2])
		if err != nil || err2 != nil || clients < 1 {
			usage()
		}
		all = load(p, keys, clients, duration)
	default:
		usage()
	}
	if !all {
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "gosdk: allowed are: gosdk life, gosdk load CLIENTS DURATION (such as: load 64 20s)")
	os.Exit(2)
}

// open returns a client with keys of its own.
func (p place) open(keys auth.Credential) *ecs.Client {
	client, err := ecs.NewClientWithOptions(p.region, sdk.NewConfig(), keys)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gosdk:", err)
		os.Exit(1)
	}
	client.Domain = p.address
	return client
}
