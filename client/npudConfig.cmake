# npud::npu, the shared library. For a static one use pkg-config --static: it needs NNG and MessagePack.
include(${CMAKE_CURRENT_LIST_DIR}/npud.cmake)
