#include "comm/mpi_communicator.hpp"
