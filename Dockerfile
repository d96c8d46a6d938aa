# The image of topodisk: its two programs, the programs of file systems that the node plugin runs, and the certificates that
# ECS is verified with. `make image` reads this file and builds the same without Docker.
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=0.2.0 --build-arg REVISION=$(git rev-parse HEAD) -t registry.example.com/storage/topodisk:0.2.0 .
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
ARG TARGETOS TARGETARCH VERSION=dev REVISION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION -X github.com/topodisk/topodisk/cmd/internal/cli.Revision=$REVISION" -o /out/ ./cmd/disk-driver ./cmd/disk-provisioner

FROM --platform=$BUILDPLATFORM debian:bookworm-slim AS rootfs
ARG TARGETARCH
RUN apt-get update -q && apt-get install -y -q --no-install-recommends binutils
COPY image /image
RUN /image/rootfs.sh /rootfs $TARGETARCH

FROM scratch
ARG VERSION=dev REVISION=unknown
LABEL org.opencontainers.image.title=topodisk
LABEL org.opencontainers.image.description="Alibaba Cloud ECS disks for Kubernetes"
LABEL org.opencontainers.image.licenses=Apache-2.0
LABEL org.opencontainers.image.source=https://github.com/topodisk/topodisk
LABEL org.opencontainers.image.version=$VERSION
LABEL org.opencontainers.image.revision=$REVISION
ENV PATH=/usr/sbin:/usr/bin
COPY --from=rootfs /rootfs/ /
COPY --from=build /out/disk-driver /disk-driver
COPY --from=build /out/disk-provisioner /disk-provisioner
USER 65532:65532
ENTRYPOINT ["/disk-driver"]
